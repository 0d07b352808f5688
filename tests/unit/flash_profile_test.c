// SPDX-License-Identifier: MIT
/* Profiles of flash: estimates for the planner, files of the user, the choice for a device. */
#include "test.h"
#include "sim/model.h"
#include "volume/card_profile.h"
#include "flash_rows.h"
#include "flash_model.h"

/* ---- estimates and profiles ---- */

TEST(test_table)
{
	struct flash_profile p = toy();

	p.write = (struct flash_speed){ .table_ns = { 100, 200, 300, 400, 500, 900, 700, 800,
						      1000 } };
	assert_int_equal(flash_write_ns(&p, 0), 0);
	assert_int_equal(flash_write_ns(&p, 512), 100);
	assert_int_equal(flash_write_ns(&p, 4096), 100);
	assert_int_equal(flash_write_ns(&p, 6144), 150);
	assert_int_equal(flash_write_ns(&p, 8192), 200);
	assert_int_equal(flash_write_ns(&p, 128 * KIB), 900);
	assert_int_equal(flash_write_ns(&p, 192 * KIB), 800); /* decreases */
	assert_int_equal(flash_write_ns(&p, MIB), 1000);
	assert_int_equal(flash_write_ns(&p, 3 * MIB), 3000);
}

TEST(test_disk_and_flush)
{
	assert_int_equal(flash_merge_ns(profile("hdd-wd7500ayys"), 0), 0);
	assert_int_equal(flash_sync_ns(profile("sandisk-extreme-pro-8g")), 0);
	assert_near((double)flash_sync_ns(profile("lexar-300x-8g")) / 1e6, 15.1, 1);
}

/*
 * 10,000 blocks all over 512 MiB, in random order and in ascending order: seconds, by hand from
 * t_W, the merge equation and the visited units. In ascending order, the remaining merges at the
 * end count, too.
 */
static double scattered_s(const char *id, bool sorted)
{
	enum { N = 10000 };
	static uint8_t used[512 * MIB / FOUR];
	struct flash_model *m = new_model(profile(id), 0, 0);
	uint64_t n = 0, at = 0;
	double s;

	memset(used, 0, sizeof(used));
	/* scattered writes meet a log in its steady state */
	for (unsigned pass = 0; pass < (sorted ? 1u : 2u); pass++) {
		flash_model_reset(m);
		for (n = 0; n < N;) {
			uint64_t blk = rnd(ARRAY_SIZE(used));

			n += !used[blk];
			if (!sorted && !used[blk])
				flash_model_write(m, GIB + blk * FOUR, FOUR, 0);
			used[blk] = 1;
		}
		if (!sorted)
			memset(used, 0, sizeof(used));
	}
	for (; sorted && at < ARRAY_SIZE(used); at++)
		if (used[at])
			flash_model_write(m, GIB + at * FOUR, FOUR, 0);
	if (sorted)
		flash_model_settle(m);
	s = (double)stats(m).clock_ns / 1e9;
	flash_model_free(m);
	return s;
}

TEST(test_scattered_and_sorted)
{
	static const struct {
		const char *id;
		double scattered, sorted;
	} plans[] = {
		{ "transcend-ts8gcf266", 213, 11.3 },
		{ "samsung-mcaqe32g5app", 417, 11.3 },
		{ "sandisk-sata5000-32g", 769, 10.1 },
		{ "lexar-300x-8g", 421, 19.7 },
		{ "sandisk-ultra-4g", 67, 31.8 },
		{ "sandisk-extreme-pro-8g", 83, 79 },
		{ "sandisk-extreme-usb-16g-usb3", 18, 12.9 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(plans); i++) {
		double scattered = scattered_s(plans[i].id, false),
		       sorted = scattered_s(plans[i].id, true);

		print_message(
			"     %-28s 10,000 blocks: scattered %5.1f s (%g by hand), sorted %5.1f (%g)\n",
			plans[i].id, scattered, plans[i].scattered, sorted, plans[i].sorted);
		assert_near(scattered, plans[i].scattered, 5);
		assert_near(sorted, plans[i].sorted, 15);
	}
}

TEST(test_profiles)
{
	assert_int_equal(flash_profiles_count(profiles), 28);
	for (size_t i = 0; i < flash_profiles_count(profiles); i++) {
		const struct flash_profile *p = flash_profiles_at(profiles, i);
		struct flash_profile q;

		assert_int_equal(flash_profile_get(&q, p->id), 0);
		assert_memory_equal(&q, p, sizeof(q));
		assert_true(*p->title && *p->source);
	}
	assert_int_equal(flash_profile_get(&(struct flash_profile){ 0 }, "nothing"), -ENOENT);
	assert_false(profile("kingston-24x-1g")->has_write);
	assert_true(profile("lexar-300x-8g")->has_write);
}

static int open_text(const char *text, char *why, size_t why_bytes)
{
	char path[] = "/tmp/cowfs-profiles-XXXXXX";
	struct flash_profiles *ps;
	int fd = mkstemp(path), r;

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
	r = flash_profiles_open(&ps, path, why, why_bytes);
	unlink(path);
	if (!r) {
		assert_non_null(flash_profiles_find(ps, "mine"));
		assert_non_null(flash_profiles_find(ps, "lexar-300x-8g"));
		flash_profiles_close(ps);
	}
	return r;
}

#define MINE(more, from)                                                                           \
	"{\"mine\": {\"title\": \"t\", \"member\": \"lexar-300x-8g\"" more                         \
	", \"from\": {\"x\": \"printed\"" from "}}}"

TEST(test_own_profiles)
{
	static const struct {
		const char *text, *says;
	} bad[] = {
		{ "[]", "not a JSON object" },
		{ "{\"mine\": ", "not a JSON object" },
		{ "", "not a JSON object" },
		{ "{\"mine\": 5}", "not an object" },
		{ "{\"lexar-300x-8g\": {}}", "twice" },
		{ "{\"mine\": {\"title\": \"t\"}}", "read_mb_s is missing" },
		{ MINE(", \"open_units\": 4", ""), "the origin of open_units is missing" },
		{ MINE(", \"open_units\": 4", ", \"open_units\": \"guessed\""),
		  "the origin of open_units is missing" },
		{ MINE(", \"open_units\": 0", ", \"open_units\": \"assumed\""),
		  "open_units must be from" },
		{ MINE(", \"open_units\": \"4\"", ", \"open_units\": \"assumed\""),
		  "open_units is not a number" },
		{ MINE(", \"open_unit\": 4", ", \"open_unit\": \"assumed\""),
		  "nothing is called open_unit" },
		{ MINE(", \"read_mb_s\": [1, 2]", ", \"read_mb_s\": \"assumed\""),
		  "read_mb_s must be" },
		{ MINE(", \"read_mb_s\": 1e400", ", \"read_mb_s\": \"assumed\""),
		  "read_mb_s must be" },
		{ MINE(", \"wear\": \"some\"", ", \"wear\": \"assumed\""), "wear is 'some'" },
		{ MINE(", \"unit_kib\": 5", ", \"unit_kib\": \"assumed\""),
		  "unit_kib must be a multiple" },
		{ MINE(", \"models\": \"X\"", ""), "models must be" },
		{ MINE(", \"models\": [\"X\", 5]", ""), "models must be" },
		{ MINE(", \"models\": [\"\"]", ""), "models must be" },
		{ MINE(", \"open_random\": 9", ", \"open_random\": \"assumed\""),
		  "open_random cannot" },
	};
	char why[256];

	assert_int_equal(open_text(MINE("", ""), why, sizeof(why)), 0);
	assert_int_equal(
		open_text(MINE(", \"open_units\": 4", ", \"open_units\": \"assumed: a guess\""),
			  why, sizeof(why)),
		0);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		why[0] = 0;
		assert_true(open_text(bad[i].text, why, sizeof(why)) < 0);
		if (!strstr(why, bad[i].says))
			fail_msg("'%s': says '%s', not '%s'", bad[i].text, why, bad[i].says);
	}
}

/* ---- the choice for a device ---- */

#define WRITE "write_ns = 1000000 100000000\n"
#define CARD(more) "[mine]\nunit_bytes = 4096\ncopy_bytes_per_s = 1\n" WRITE more

static void write_text(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
}

/* lab/sim/cards.conf is what make cards prints, and a planner reads from it what the profile has. */
TEST(test_published)
{
	struct card_costs want, got;
	char *text = NULL, path[PATH_MAX], why[256], *file;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	assert_non_null(f);
	flash_profiles_write(f, profiles, false);
	assert_int_equal(fclose(f), 0);
	assert_int_equal(costs_published(path), 0);
	file = calloc(1, 2 * len);
	f = fopen(path, "r");
	assert_non_null(f);
	assert_true(fread(file, 1, 2 * len - 1, f) > len);
	(void)fclose(f);
	assert_string_equal(strstr(file, "\n\n[") + 1, text);
	for (size_t i = 0; i < flash_profiles_count(profiles); i++) {
		const struct flash_profile *p = flash_profiles_at(profiles, i);
		int r = flash_profile_costs(p, &want);

		assert_int_equal(costs_read(&got, path, p->id, NULL, why, sizeof(why)),
				 r ? -ENOENT : 0);
		if (r)
			continue;
		for (uint64_t n = FOUR; n < 8 * MIB; n += n < MIB ? FOUR : 100 * FOUR) {
			int64_t apart =
				(int64_t)(flash_speed_ns(&got.write, n) - flash_write_ns(p, n));

			/* a line through two times is known to a millionth, a table as it is */
			assert_true(llabs(apart) <=
				    (want.write.affine ? 2 + (int64_t)flash_write_ns(p, n) / 1000000
						       : 0));
		}
		assert_int_equal(costs_merge_ns(&got, 4096), flash_merge_ns(p, 4096));
		got.write = want.write;
		assert_memory_equal(&got, &want, sizeof(got));
	}
	free(text);
	free(file);
}

TEST(test_not_a_card)
{
	static const struct {
		const char *text, *says;
	} bad[] = {
		{ "", "has 0 profiles" },
		{ "{\"mine\": {}}", "cowctl measure --convert" },
		{ "unit_bytes = 1\n", "must follow a [section]" },
		{ CARD("what\n"), "line 5 is neither" },
		{ "what\n" CARD(""), "line 1 is neither" },
		{ CARD("open_unit = 4\n"), "profile 'mine': nothing is called open_unit" },
		{ CARD("open_units = 0\n"), "open_units must be a whole number from 1 to 1024" },
		{ CARD("open_units = 3x\n"), "open_units must be" },
		{ CARD("open_random = 2\n"), "open_random cannot" },
		{ CARD("unit_bytes = 5000\n"), "unit_bytes must be a multiple" },
		{ "[mine]\nunit_bytes = 0\n" WRITE, "unit_bytes must be a multiple" },
		{ "[mine]\nunit_bytes = 4096\n" WRITE, "copy_bytes_per_s is missing" },
		{ "[mine]\nunit_bytes = 4096\ncopy_bytes_per_s = 1\n", "write_ns is missing" },
		{ CARD("write_ns = 1 2 3\n"), "write_ns must be 2 or 9 times" },
		{ CARD("write_ns = 2 1\n"), "write_ns must be" },
		{ CARD("write_ns = 5 5\n"), "write_ns must be" },
		{ CARD("write_ns = 0 5\n"), "write_ns must be" },
		{ CARD("write_ns = 1 2 3 4 5 6 7 8 9 10\n"), "write_ns must be" },
		{ CARD("[mine]\n[b]\n" WRITE "seek_ns = 1\n"), "has 2 profiles" },
	};
	char path[] = "/tmp/cowfs-cards-XXXXXX", why[256];
	struct card_costs c;

	assert_int_equal(close(mkstemp(path)), 0);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		write_text(path, bad[i].text);
		assert_int_equal(costs_read(&c, path, NULL, NULL, why, sizeof(why)), -EINVAL);
		if (!strstr(why, bad[i].says))
			fail_msg("'%s': says '%s', not '%s'", bad[i].text, why, bad[i].says);
	}
	write_text(path, CARD(""));
	assert_int_equal(costs_read(&c, path, NULL, NULL, why, sizeof(why)), 0);
	assert_int_equal(flash_speed_ns(&c.write, MIB), 100000000);
	assert_int_equal(c.open_units, 1);
	unlink(path);
}

static struct profile_choice choose(const char *text, const char *model, const char *identity)
{
	struct profile_choice c = { .source = PROFILE_NONE };
	char why[512] = "";

	if (profile_choose(&c, text, model, identity, why, sizeof(why)) < 0)
		fail_msg("%s, %s: %s", text, model, why);
	return c;
}

/* The profile that cowctl measure --save has written for the card with this identity. */
TEST(test_measured)
{
	static const char text[] = CARD("plan = no\nidentity = a/b\n");
	char dir[] = "/tmp/cowfs-measured-XXXXXX", path[256], other[256];
	struct profile_choice c;

	assert_non_null(mkdtemp(dir));
	assert_int_equal(setenv("COWFS_PROFILES", dir, 1), 0);
	assert_int_equal(costs_saved("", path, sizeof(path)), -ENOENT);
	assert_int_equal(costs_saved("a/b", path, sizeof(path)), 0);
	assert_int_equal(costs_saved("a_b", other, sizeof(other)), 0);
	/* never another folder, and never the file of another card */
	assert_null(strchr(path + strlen(dir) + 1, '/'));
	assert_string_not_equal(path, other);
	/* a newer cowfs finds what this one has saved */
	assert_int_equal(costs_saved("usb-a/b_1", other, sizeof(other)), 0);
	assert_string_equal(other + strlen(dir), "/usb-a_b_1-18c1ff11.conf");
	assert_int_equal(choose("auto", "TS8GCF266", "a/b").source, PROFILE_MATCHED);
	write_text(path, text);
	c = choose("auto", "TS8GCF266", "a/b");
	assert_int_equal(c.source, PROFILE_MEASURED);
	assert_string_equal(c.profile.id, "mine");
	assert_true(c.profile.unconfirmed);
	assert_int_equal(choose("auto", "TS8GCF266", "a_b").source, PROFILE_MATCHED);
	assert_int_equal(choose("none", "", "a/b").source, PROFILE_NONE);
	/* one that was copied from another card is not used */
	write_text(path, CARD("identity = a/c\n"));
	c = choose("auto", "TS8GCF266", "a/b");
	assert_int_equal(c.source, PROFILE_MATCHED);
	assert_true(c.of_another);
	assert_string_equal(c.profile.id, "transcend-ts8gcf266");
	write_text(path, text);
	c = choose("auto", "TS8GCF266", "a/b");
	assert_int_equal(c.source, PROFILE_MEASURED);
	assert_false(c.of_another);
	/* a damaged one keeps no volume from being attached */
	assert_int_equal(truncate(path, 10), 0);
	assert_int_equal(choose("auto", "", "a/b").source, PROFILE_GUESSED);
	unlink(path);
	/* nor does one that never ends, or never begins */
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(choose("auto", "", "a/b").source, PROFILE_GUESSED);
	unlink(path);
	rmdir(dir);
	unsetenv("COWFS_PROFILES");
}

static void no_choice(const char *text, int error, const char *says)
{
	struct profile_choice c = { .source = PROFILE_NONE };
	char why[512] = "";

	assert_int_equal(profile_choose(&c, text, "TS8GCF266", "", why, sizeof(why)), error);
	assert_int_equal(c.source, PROFILE_NONE);
	if (!strstr(why, says))
		fail_msg("%s: says '%s', not '%s'", text, why, says);
}

TEST(test_choice)
{
	static const struct {
		const char *model, *id; /* NULL: none */
	} named[] = {
		{ "TS8GCF266", "transcend-ts8gcf266" },
		{ "TRANSCEND ts8gcf266", "transcend-ts8gcf266" },
		{ "SanDisk SDCFH-004G", "sandisk-ultra-4g" },
		{ "SA04G", "x-kingston-sa04g-4g" },
		{ "TS8GCF266X TS8GCF266", "transcend-ts8gcf266" },
		{ "TS8GCF2666", NULL },
		{ "XTS8GCF266", NULL },
		{ "TS8GCF", NULL },
		{ "Storage Device", NULL },
		{ "", NULL },
	};
	char path[] = "/tmp/cowfs-profiles-XXXXXX", text[128];
	struct card_costs p;

	for (size_t i = 0; i < ARRAY_SIZE(named); i++) {
		struct profile_choice c = choose("auto", named[i].model, "");

		if (c.source != (named[i].id ? PROFILE_MATCHED : PROFILE_GUESSED))
			fail_msg("'%s': %d", named[i].model, c.source);
		assert_string_equal(c.profile.id, named[i].id ? named[i].id : "");
	}
	assert_int_equal(choose("none", "TS8GCF266", "").source, PROFILE_NONE);
	assert_int_equal(choose("x-slow-4g", "TS8GCF266", "").source, PROFILE_GIVEN);
	assert_string_equal(choose("x-slow-4g", "TS8GCF266", "").profile.id, "x-slow-4g");
	no_choice("x-slow", -ENOENT, "unknown profile x-slow:");
	/* an array, and a layer that makes all writes linear, are no cards */
	no_choice("samsung-raid5-4", -ENOENT, "unknown profile samsung-raid5-4:");
	no_choice("transcend-ts8gcf266-mft", -ENOENT, "unknown profile");
	no_choice("/nowhere/x.conf:a", -ENOENT, "/nowhere/x.conf: No such file");

	assert_int_equal(close(mkstemp(path)), 0);
	write_text(path, CARD(""));
	assert_string_equal(choose(path, "", "").profile.id, "mine");
	write_text(path, CARD("[b]\n" WRITE "seek_ns = 1\n"));
	no_choice(path, -EINVAL, "has 2 profiles: name one");
	snprintf(text, sizeof(text), "%s:mine", path);
	assert_string_equal(choose(text, "", "").profile.id, "mine");
	assert_int_equal(choose(text, "", "").source, PROFILE_GIVEN);
	snprintf(text, sizeof(text), "%s:x-slow-4g", path);
	/* published ones are not in the file */
	no_choice(text, -ENOENT, "unknown profile x-slow-4g in /tmp/");
	unlink(path);
	/* without the file of published cards a system starts, and no name is known */
	assert_int_equal(setenv("COWFS_CARDS", "/nowhere", 1), 0);
	assert_int_equal(choose("auto", "TS8GCF266", "").source, PROFILE_GUESSED);
	no_choice("x-slow-4g", -ENOENT, "unknown profile x-slow-4g: /nowhere");
	assert_int_equal(setenv("COWFS_CARDS", CARDS, 1), 0);

	costs_guess(&p, 8 * MIB);
	assert_true(p.guessed);
	assert_int_equal(p.unit_bytes, 8 * MIB);
	assert_int_equal(flash_speed_ns(&p.write, 4096), 1000000 + 409600);
}

TEST(test_bad_models)
{
	struct flash_model *m = NULL;
	struct flash_profile p = toy();

	assert_int_equal(flash_model_new(&m, &p, 100, 0), -EINVAL);
	p.unit_bytes = 5000;
	assert_int_equal(flash_model_new(&m, &p, 0, 0), -EINVAL);
	p = toy(), p.open_units = 0;
	assert_int_equal(flash_model_new(&m, &p, 0, 0), -EINVAL);
	p = toy(), p.members = 2, p.raid_level = 5, p.chunk_bytes = 64 * KIB;
	assert_int_equal(flash_model_new(&m, &p, 0, 0), -EINVAL);
	p.members = 3, p.raid_level = 10;
	assert_int_equal(flash_model_new(&m, &p, 0, 0), -EINVAL);
	assert_null(m);
	flash_model_free(NULL);
}

static int open_all(void **state)
{
	return setenv("COWFS_CARDS", CARDS, 1) < 0 ? -1 : open_profiles(state);
}

TEST_GROUP(open_all, close_profiles)
