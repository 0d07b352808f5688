/* SPDX-License-Identifier: MIT */
/* Health reports of devices, and the projection made from them: from documents as text, to
 * fields. */
#include "test.h"
#include "wear/health.h"
#include "wear/projection.h"

#define DAY 86400ull
enum { TODAY = 20000 };

static struct json_object *parse(const char *text)
{
	struct json_object *o = json_tokener_parse(text);

	assert_non_null(o);
	return o;
}

/* "a.b.0.c" */
static struct json_object *find(struct json_object *o, const char *path)
{
	char name[64];

	while (o && *path) {
		size_t n = strcspn(path, ".");

		snprintf(name, sizeof(name), "%.*s", (int)n, path);
		o = json_object_is_type(o, json_type_array)
			    ? json_object_array_get_idx(o, strtoul(name, NULL, 10))
			    : json_object_object_get(o, name);
		path += n + (path[n] == '.');
	}
	return o;
}

static double num(struct json_object *o, const char *path)
{
	struct json_object *v = find(o, path);

	assert_non_null(v);
	return json_object_get_double(v);
}

static const char *text(struct json_object *o, const char *path)
{
	return json_object_get_string(find(o, path));
}

static void near(double is, double should)
{
	double off = is > should ? is - should : should - is, size = should < 0 ? -should : should;

	if (!(off <= 1e-6 * (size > 1 ? size : 1)))
		fail_msg("%g instead of %g", is, should);
}

/* ---- health ---- */

static struct json_object *from_smart(const char *smart, bool expect)
{
	struct json_object *health = health_read("/nowhere", false), *s = parse(smart);

	assert_int_equal(health_from_smart(health, s), expect);
	json_object_put(s);
	return health;
}

/* Names and numbers as smartctl prints them of a CompactFlash card with a Silicon Motion
 * controller. */
TEST(test_ata)
{
	struct json_object *h = from_smart(
		"{\"model_name\":\"TS32GCF220I\",\"smart_status\":{\"passed\":true},\"ata_smart_attributes\":{\"table\":["
		"{\"id\":161,\"name\":\"Valid_Spare_Block_Cnt\",\"value\":100,\"raw\":{\"value\":52}},"
		"{\"id\":164,\"name\":\"Total_Erase_Count\",\"value\":100,\"raw\":{\"value\":300000}},"
		"{\"id\":165,\"name\":\"Max_Erase_Count\",\"value\":100,\"raw\":{\"value\":64}},"
		"{\"id\":166,\"name\":\"Min_Erase_Count\",\"value\":100,\"raw\":{\"value\":2}},"
		"{\"id\":167,\"name\":\"Average_Erase_Count\",\"value\":100,\"raw\":{\"value\":30}},"
		"{\"id\":168,\"name\":\"Max_Erase_Count_of_Spec\",\"value\":100,\"raw\":{\"value\":3000}},"
		"{\"id\":169,\"name\":\"Remaining_Lifetime_Perc\",\"value\":100,\"raw\":{\"value\":99}},"
		"{\"id\":241,\"name\":\"Host_Writes_32MiB\",\"value\":100,\"raw\":{\"value\":183072}},"
		"{\"id\":245,\"name\":\"TLC_Writes_32MiB\",\"value\":100,\"raw\":{\"value\":333896}}]}}",
		true);

	assert_string_equal(text(h, "kind"), "ata");
	assert_string_equal(text(h, "model"), "TS32GCF220I");
	assert_int_equal(json_object_array_length(find(h, "life_used")), 1);
	near(num(h, "life_used.0.high"), 0.01);
	near(num(h, "host_written_bytes"), 183072.0 * 32 * MIB);
	near(num(h, "flash_written_bytes"), 333896.0 * 32 * MIB);
	near(num(h, "erase_cycles.average"), 30);
	near(num(h, "erase_cycles.most"), 64);
	near(num(h, "erase_cycles.rated"), 3000);
	near(num(h, "spare.blocks"), 52);
	assert_int_equal(json_object_array_length(find(h, "attributes")), 9);
	json_object_put(h);
	/* without a percentage, from the erase counts */
	h = from_smart(
		"{\"ata_smart_attributes\":{\"table\":["
		"{\"id\":167,\"name\":\"Average_Erase_Count\",\"value\":100,\"raw\":{\"value\":300}},"
		"{\"id\":168,\"name\":\"Max_Erase_Count_of_Spec\",\"value\":100,\"raw\":{\"value\":3000}}]}}",
		true);
	near(num(h, "life_used.0.low"), 0.1);
	json_object_put(h);
	/* the same numbers with other names have another meaning */
	h = from_smart(
		"{\"ata_smart_attributes\":{\"table\":["
		"{\"id\":167,\"name\":\"Write_Protect_Mode\",\"value\":100,\"raw\":{\"value\":300}},"
		"{\"id\":168,\"name\":\"SATA_Phy_Error_Count\",\"value\":100,\"raw\":{\"value\":3000}},"
		"{\"id\":241,\"name\":\"Unknown_Attribute\",\"value\":100,\"raw\":{\"value\":3000}}]}}",
		true);
	assert_int_equal(json_object_array_length(find(h, "life_used")), 0);
	assert_null(find(h, "host_written_bytes"));
	json_object_put(h);
}

TEST(test_nvme)
{
	struct json_object *h = from_smart(
		"{\"smart_status\":{\"passed\":false},\"nvme_smart_health_information_log\":{"
		"\"percentage_used\":7,\"available_spare\":98,\"available_spare_threshold\":10,"
		"\"data_units_written\":1000,\"media_errors\":3}}",
		true);

	assert_string_equal(text(h, "kind"), "nvme");
	near(num(h, "life_used.0.low"), 0.06);
	near(num(h, "life_used.0.high"), 0.07);
	near(num(h, "host_written_bytes"), 512e6);
	near(num(h, "spare.percent"), 98);
	near(num(h, "media_errors"), 3);
	assert_false(json_object_get_boolean(find(h, "passed")));
	json_object_put(h);
}

/* Any output of a program called smartctl. */
TEST(test_smart_nonsense)
{
	static const char *const docs[] = { "[]",
					    "{}",
					    "3",
					    "\"x\"",
					    "{\"ata_smart_attributes\":3}",
					    "{\"smart_status\":[]}",
					    "{\"ata_smart_attributes\":{\"table\":{}}}",
					    "{\"ata_smart_attributes\":{\"table\":[]}}",
					    "{\"model_name\":{}}" };

	for (size_t i = 0; i < ARRAY_SIZE(docs); i++)
		json_object_put(from_smart(docs[i], false));
	json_object_put(from_smart(
		"{\"ata_smart_attributes\":{\"table\":[1,[],{},{\"id\":\"x\"},{\"id\":1,\"name\":2,"
		"\"value\":3,\"raw\":[]}]}}",
		true));
	json_object_put(from_smart(
		"{\"nvme_smart_health_information_log\":{\"percentage_used\":\"x\"}}", true));
}

TEST(test_cmd56)
{
	uint8_t sandisk[512] = "DS210101", longsys[512] = { 0x70, 0x58 }, micron[512] = "ME",
		swissbit[512] = "Sw", noise[512];
	struct json_object *h = health_read("/nowhere", true);

	sandisk[8] = 12;
	longsys[44] = 81;
	micron[8] = 33;
	micron[9] = 4;
	swissbit[80] = 55;
	assert_true(health_from_cmd56(h, 1, sandisk));
	assert_true(health_from_cmd56(h, 1, longsys));
	assert_true(health_from_cmd56(h, 0x110005fb, micron));
	assert_true(health_from_cmd56(h, 0x53420001, swissbit));
	near(num(h, "life_used.0.high"), 0.12);
	near(num(h, "life_used.0.low"), 0.11);
	near(num(h, "life_used.1.high"), 0.19);
	near(num(h, "life_used.2.high"), 0.33);
	near(num(h, "life_used.3.high"), 0.04);
	near(num(h, "life_used.4.high"), 0.45);
	memset(noise, 0xff, sizeof(noise));
	assert_false(health_from_cmd56(h, 1, noise));
	memset(noise, 0, sizeof(noise));
	assert_false(health_from_cmd56(h, 1, noise));
	assert_false(health_from_cmd56(h, 0x110005fb, sandisk));
	json_object_put(h);
}

/* ---- projection ---- */

/* days: number of lines, the last one is today; each as per_day returns (x GiB written, 4x
 * absorbed) */
static struct json_object *wear_of(unsigned days, double (*per_day)(unsigned i), const char *health)
{
	struct json_object *w = parse(
		"{\"device_bytes\":32000000000,\"totals\":{},\"ratios\":{},\"erase_blocks\":{"
		"\"erase_block_bytes\":4194304,\"unit_bytes\":4194304,\"hottest\":[{\"visits\":1000}]},"
		"\"history\":{\"days\":[]}}");
	struct json_object *a = find(w, "history.days"), *t = find(w, "totals");
	double written = 0;

	for (unsigned i = 0; i < days; i++) {
		double bytes = per_day(i) * GIB;
		struct json_object *d;

		written += bytes;
		if (!bytes)
			continue;
		d = json_object_new_object();
		json_object_object_add(d, "unix_day", json_object_new_uint64(TODAY - days + 1 + i));
		json_object_object_add(d, "written_bytes", json_object_new_double(bytes));
		json_object_object_add(d, "absorbed_bytes", json_object_new_double(4 * bytes));
		json_object_object_add(d, "absorbed_writes",
				       json_object_new_double(4 * bytes / 65536));
		json_object_object_add(d, "erase_block_visits",
				       json_object_new_double(bytes / GIB * 1024));
		json_object_array_add(a, d);
	}
	json_object_object_add(t, "written_bytes", json_object_new_double(written));
	json_object_object_add(t, "absorbed_bytes", json_object_new_double(4 * written));
	json_object_object_add(t, "absorbed_writes", json_object_new_double(4 * written / 65536));
	/* each GiB in 1024 visits: four times its size in erase blocks */
	json_object_object_add(t, "erase_block_visits",
			       json_object_new_double(written / GIB * 1024));
	json_object_object_add(t, "first_unix_seconds",
			       json_object_new_uint64((TODAY - days + 1) * DAY));
	json_object_object_add(w, "health", parse(health));
	return w;
}

static struct json_object *project(struct json_object *w, const char *flash)
{
	return projection_make(w, projection_class(flash), TODAY * DAY + 43200);
}

static double one(unsigned i)
{
	return 1;
}

static double nothing(unsigned i)
{
	return i == 0;
}

static double rising(unsigned i)
{
	return i + 1;
}

TEST(test_not_enough)
{
	struct json_object *w, *p;

	for (unsigned days = 1; days <= 9; days++) {
		w = wear_of(days, one, "{}");
		p = project(w, "unknown");
		/* today is not over */
		assert_int_equal(json_object_get_boolean(find(p, "enough_data")), days >= 8);
		near(num(p, "observed_days"), days - 1);
		assert_true(days >= 8 ? !!find(p, "scenarios.whole_card") : !find(p, "scenarios"));
		json_object_put(p);
		json_object_put(w);
	}
}

/* Of so many cycles of 32 GB what is left after these bytes. */
static double left(double cycles, double bytes)
{
	return 1 - bytes / (cycles * 32e9);
}

/* 1 GiB a day, 500 to 5000 cycles of 32 GB, amplified 1 to 4 times: by hand. */
TEST(test_whole_card)
{
	struct json_object *w = wear_of(31, one, "{}"), *p = project(w, "unknown");
	double days = 32e9 / GIB, low = left(500, 4 * 31.0 * GIB), high = left(5000, 31.0 * GIB);

	near(num(p, "scenarios.whole_card.seconds_low"), 500 * days / 4 * low * DAY);
	near(num(p, "scenarios.whole_card.seconds_high"), 5000 * days * high * DAY);
	assert_string_equal(text(p, "scenarios.whole_card.basis"), "bounded");
	assert_string_equal(text(p, "factors.daily_bytes.basis"), "measured");
	assert_string_equal(text(p, "factors.erase_cycles.basis"), "assumed");
	assert_string_equal(text(p, "factors.device_amplification.basis"), "bounded");
	assert_string_equal(text(p, "factors.life_left.basis"), "assumed");
	assert_string_equal(text(w, "ratios.device_amplification.basis"), "bounded");
	/* 4 GiB instead of 1; 65,536 writes of 64 KiB instead of 1024 visits */
	near(num(p, "factors.sooner_without_cowfs.low"), 4);
	near(num(p, "factors.sooner_without_cowfs.high"), 64);
	assert_string_equal(text(p, "factors.sooner_without_cowfs.basis"), "model");
	/* 1000 visits in 30 days at least, 30.5 at most */
	near(num(p, "scenarios.hottest_erase_block.seconds_low"), 500 * 30.0 * low * DAY / 1000);
	near(num(p, "scenarios.hottest_erase_block.seconds_high"), 5000 * 30.5 * high * DAY / 1000);
	json_object_put(p);
	json_object_put(w);
	w = wear_of(31, one, "{}");
	p = project(w, "slc");
	near(num(p, "scenarios.whole_card.seconds_low"),
	     30000 * days / 4 * left(30000, 4 * 31.0 * GIB) * DAY);
	json_object_put(p);
	json_object_put(w);
}

/* What cowfs wrote is used up, also on a card that reports nothing. */
TEST(test_used)
{
	struct json_object *w = wear_of(31, one, "{}"), *p;
	double written = 100e12, days = 32e9 / GIB;

	json_object_object_add(find(w, "totals"), "written_bytes", json_object_new_double(written));
	json_object_object_add(find(w, "totals"), "erase_block_visits",
			       json_object_new_double(2 * written / (4 * MIB)));
	p = project(w, "unknown");
	/* 500 cycles, amplified twice: over; 5000 cycles of 32 GB are 160 TB */
	near(num(p, "factors.life_left.low"), 0);
	near(num(p, "factors.life_left.high"), 1 - 100.0 / 160);
	near(num(p, "scenarios.whole_card.seconds_low"), 0);
	near(num(p, "scenarios.whole_card.seconds_high"), 5000 * days * (1 - 100.0 / 160) * DAY);
	json_object_put(p);
	json_object_put(w);
	w = wear_of(31, one, "{}");
	json_object_object_add(find(w, "totals"), "written_bytes", json_object_new_double(0));
	p = project(w, "unknown");
	near(num(p, "factors.life_left.low"), 1);
	json_object_put(p);
	json_object_put(w);
}

/* A figure from the device replaces the assumed one. */
TEST(test_measured)
{
	struct json_object *w =
		wear_of(31, one,
			"{\"disk_bytes\":64000000000,\"host_written_bytes\":100,"
			"\"flash_written_bytes\":250,\"erase_cycles\":{\"rated\":3000},"
			"\"life_used\":[{\"low\":0,\"high\":0.1},{\"low\":0.4,\"high\":0.5}]}");
	struct json_object *p = project(w, "unknown");
	double days = 64e9 / GIB;

	near(num(p, "scenarios.whole_card.seconds_low"), 3000 * days / 2.5 * 0.5 * DAY);
	near(num(p, "scenarios.whole_card.seconds_high"), 3000 * days / 2.5 * 0.6 * DAY);
	assert_string_equal(text(p, "factors.erase_cycles.basis"), "measured");
	assert_string_equal(text(p, "factors.device_amplification.basis"), "measured");
	assert_string_equal(text(p, "factors.life_left.basis"), "measured");
	json_object_put(p);
	json_object_put(w);
}

TEST(test_spread)
{
	struct json_object *w = wear_of(11, rising, "{}"), *p = project(w, "unknown");

	/* 1 to 10 GiB; the eleventh day is today */
	near(num(p, "factors.daily_bytes.low"), 5.0 * GIB);
	near(num(p, "factors.daily_bytes.high"), 9.0 * GIB);
	json_object_put(p);
	json_object_put(w);
	/* one write in a month: the median is zero, and no upper end is given; a lower one is */
	w = wear_of(31, nothing, "{}");
	p = project(w, "unknown");
	assert_true(json_object_get_boolean(find(p, "enough_data")));
	assert_null(find(p, "scenarios.whole_card.seconds_high"));
	near(num(p, "factors.daily_bytes.high"), GIB / 30.0);
	near(num(p, "scenarios.whole_card.seconds_low"),
	     500 * 32e9 / (4.0 * GIB / 30) * left(500, 4.0 * GIB) * DAY);
	json_object_put(p);
	json_object_put(w);
}

/* Lines of a clock that was not set, or is ahead, do not stretch the time. */
TEST(test_clocks)
{
	struct json_object *w = wear_of(31, one, "{}"), *p;
	double low = left(500, 4 * 31.0 * GIB);

	json_object_array_add(find(w, "history.days"),
			      parse("{\"unix_day\":0,\"written_bytes\":99}"));
	json_object_array_add(find(w, "history.days"),
			      parse("{\"unix_day\":28000,\"written_bytes\":99}"));
	p = project(w, "unknown");
	near(num(p, "observed_days"), 30);
	near(num(p, "ignored_days"), 2);
	near(num(p, "factors.daily_bytes.high"), (double)GIB);
	json_object_put(p);
	/* nor does a first boot with the date of some package, although the ledger counts from
	 * it */
	json_object_array_add(find(w, "history.days"),
			      parse("{\"unix_day\":19000,\"written_bytes\":99}"));
	json_object_object_add(find(w, "totals"), "first_unix_seconds",
			       json_object_new_uint64(19000 * DAY));
	p = project(w, "unknown");
	near(num(p, "observed_days"), 30);
	near(num(p, "factors.daily_bytes.low"), (double)GIB);
	near(num(p, "scenarios.hottest_erase_block.seconds_low"), 500 * 30.0 * low * DAY / 1000);
	json_object_put(p);
	/* attached for longer than the clocks show; a clock that was never set */
	json_object_object_add(find(w, "totals"), "attached_seconds",
			       json_object_new_double(90.0 * DAY));
	json_object_object_add(find(w, "totals"), "first_unix_seconds", json_object_new_uint64(0));
	p = project(w, "unknown");
	near(num(p, "scenarios.hottest_erase_block.seconds_low"), 500 * 90.0 * low * DAY / 1000);
	near(num(p, "scenarios.hottest_erase_block.seconds_high"),
	     5000 * 90.0 * left(5000, 31.0 * GIB) * DAY / 1000);
	json_object_put(p);
	/* a weekend machine has no pause */
	for (unsigned day = TODAY - 30 - 50; day > 19700; day -= 50)
		json_object_array_add(find(w, "history.days"), json_object_new_object()),
			json_object_object_add(
				json_object_array_get_idx(
					find(w, "history.days"),
					json_object_array_length(find(w, "history.days")) - 1),
				"unix_day", json_object_new_uint64(day));
	p = project(w, "unknown");
	near(num(p, "observed_days"), 280);
	json_object_put(p);
	/* the clock shows 1970: nothing is known */
	p = projection_make(w, projection_class("unknown"), 3600);
	assert_false(json_object_get_boolean(find(p, "enough_data")));
	json_object_put(p);
	json_object_put(w);
}

TEST(test_share)
{
	double low, high;

	projection_share(projection_class("unknown"), 32e9, 4 * MIB, 8 * MIB, 100, &low, &high);
	near(low * 1e12, 8.0 * MIB / (5000 * 32e9) * 1e12);
	near(high * 1e12, 400.0 * MIB / (500 * 32e9) * 1e12);
	assert_null(projection_class("plc"));
}
