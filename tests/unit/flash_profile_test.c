// SPDX-License-Identifier: MIT
/* Profiles of flash: estimates for the planner, files of the user, the choice for a device. */
#include "test.h"
#include "sim/model.h"
#include "sim/describe.h"
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

static bool count_sources(void *ctx, const char *key, const char *value, const char *from)
{
	unsigned *n = ctx;

	assert_true(*key && *value);
	n[!strncmp(from, "printed", 7)	   ? 0
	  : !strncmp(from, "derived: ", 9) ? 1
	  : !strncmp(from, "assumed: ", 9) ? 2
					   : 3]++;
	return true;
}

TEST(test_profiles)
{
	unsigned n[4] = { 0 };

	assert_int_equal(flash_profiles_count(profiles), 28);
	for (size_t i = 0; i < flash_profiles_count(profiles); i++) {
		const struct flash_profile *p = flash_profiles_at(profiles, i);
		struct flash_profile q;

		assert_int_equal(flash_profile_get(&q, p->id), 0);
		assert_memory_equal(&q, p, sizeof(q));
		assert_true(*p->title && *p->source);
		profile_describe(profiles, i, count_sources, n);
	}
	print_message("     numbers printed in their source %u, derived %u, assumed %u\n", n[0],
		      n[1], n[2]);
	assert_true(n[0] > 60 && n[1] > 40 && n[2] > 60);
	assert_int_equal(n[3], 5 + 6 + 6); /* notes, members, models */
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

static void write_text(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
}

/* The profile that cowctl measure --save has written for the card with this identity. */
TEST(test_measured)
{
	static const char text[] = MINE(", \"plan\": false, \"identity\": \"a/b\"", "");
	char dir[] = "/tmp/cowfs-measured-XXXXXX", path[256], other[256], why[512] = "";
	struct profile_choice c;

	assert_non_null(mkdtemp(dir));
	assert_int_equal(setenv("COWFS_PROFILES", dir, 1), 0);
	assert_int_equal(flash_profile_path("", path, sizeof(path)), -ENOENT);
	assert_int_equal(flash_profile_path("a/b", path, sizeof(path)), 0);
	assert_int_equal(flash_profile_path("a_b", other, sizeof(other)), 0);
	/* never another folder, and never the file of another card */
	assert_null(strchr(path + strlen(dir) + 1, '/'));
	assert_string_not_equal(path, other);
	assert_int_equal(profile_choose(&c, "auto", "TS8GCF266", "a/b", why, sizeof(why)), 0);
	assert_int_equal(c.source, PROFILE_MATCHED);
	write_text(path, text);
	assert_int_equal(profile_choose(&c, "auto", "TS8GCF266", "a/b", why, sizeof(why)), 0);
	assert_int_equal(c.source, PROFILE_MEASURED);
	assert_string_equal(c.profile.id, "mine");
	assert_true(c.profile.unconfirmed);
	assert_int_equal(profile_choose(&c, "auto", "TS8GCF266", "a_b", why, sizeof(why)), 0);
	assert_int_equal(c.source, PROFILE_MATCHED);
	assert_int_equal(profile_choose(&c, "none", "", "a/b", why, sizeof(why)), 0);
	assert_int_equal(c.source, PROFILE_NONE);
	/* one that was copied from another card is not used */
	write_text(path, MINE(", \"identity\": \"a/c\"", ""));
	assert_int_equal(profile_choose(&c, "auto", "TS8GCF266", "a/b", why, sizeof(why)), 0);
	assert_int_equal(c.source, PROFILE_MATCHED);
	assert_true(c.of_another);
	write_text(path, text);
	assert_int_equal(profile_choose(&c, "auto", "TS8GCF266", "a/b", why, sizeof(why)), 0);
	assert_int_equal(c.source, PROFILE_MEASURED);
	assert_false(c.of_another);
	/* a damaged one keeps no volume from being attached */
	assert_int_equal(truncate(path, 10), 0);
	assert_int_equal(profile_choose(&c, "auto", "", "a/b", why, sizeof(why)), 0);
	assert_int_equal(c.source, PROFILE_GUESSED);
	unlink(path);
	/* nor does one that never ends, or never begins */
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(profile_choose(&c, "auto", "", "a/b", why, sizeof(why)), 0);
	assert_int_equal(c.source, PROFILE_GUESSED);
	unlink(path);
	rmdir(dir);
	unsetenv("COWFS_PROFILES");
}

static struct profile_choice choose(const char *text, const char *model)
{
	struct profile_choice c = { .source = PROFILE_NONE };
	char why[512] = "";

	if (profile_choose(&c, text, model, "", why, sizeof(why)) < 0)
		fail_msg("%s, %s: %s", text, model, why);
	return c;
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
	int fd = mkstemp(path);
	struct flash_profile p;

	for (size_t i = 0; i < ARRAY_SIZE(named); i++) {
		struct profile_choice c = choose("auto", named[i].model);

		if (c.source != (named[i].id ? PROFILE_MATCHED : PROFILE_GUESSED))
			fail_msg("'%s': %d", named[i].model, c.source);
		assert_string_equal(c.profile.id, named[i].id ? named[i].id : "");
	}
	assert_int_equal(choose("none", "TS8GCF266").source, PROFILE_NONE);
	assert_int_equal(choose("x-slow-4g", "TS8GCF266").source, PROFILE_GIVEN);
	assert_string_equal(choose("x-slow-4g", "TS8GCF266").profile.id, "x-slow-4g");
	no_choice("x-slow", -ENOENT, "unknown profile x-slow:");
	no_choice("samsung-raid5-4", -EINVAL, "describes an array");
	no_choice("transcend-ts8gcf266-mft", -EINVAL, "describes an array");
	no_choice("/nowhere/x.json:a", -ENOENT, "/nowhere/x.json: No such file");

	assert_true(fd >= 0);
	assert_int_equal(write(fd, MINE(", \"models\": [\"X 1\"]", ""),
			       sizeof(MINE(", \"models\": [\"X 1\"]", "")) - 1),
			 sizeof(MINE(", \"models\": [\"X 1\"]", "")) - 1);
	assert_string_equal(choose(path, "").profile.id, "mine");
	/* a file of several objects has the profiles of all */
	assert_int_equal(lseek(fd, 0, SEEK_END) > 0 ? write(fd, "\n{} ", 4) : 0, 4);
	assert_string_equal(choose(path, "").profile.id, "mine");
	assert_int_equal(write(fd, "{\"mine\": {}}", 12), 12);
	no_choice(path, -EEXIST, "profile 'mine' is defined twice");
	assert_int_equal(ftruncate(fd, lseek(fd, -12, SEEK_CUR)), 0);
	snprintf(text, sizeof(text), "%s:mine", path);
	assert_string_equal(choose(text, "").profile.id, "mine");
	assert_int_equal(choose(text, "").source, PROFILE_GIVEN);
	snprintf(text, sizeof(text), "%s:x-slow-4g", path);
	/* profiles of the program are not in the file */
	no_choice(text, -ENOENT, "unknown profile x-slow-4g in /tmp/");
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_int_equal(pwrite(fd, "{}", 2, 0), 2);
	no_choice(path, -EINVAL, "has 0 profiles");
	assert_int_equal(pwrite(fd, "{]", 2, 0), 2);
	no_choice(path, -EINVAL, "not a JSON object");
	close(fd);
	unlink(path);

	flash_profile_guess(&p, 8 * MIB, GIB);
	assert_true(p.guessed);
	assert_int_equal(p.unit_bytes, 8 * MIB);
	assert_int_equal(flash_write_ns(&p, 4096), 1000000 + 409600);
	assert_int_equal(flash_random_read_ns(&p, 4096), 1000000 + 204800);
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

TEST_GROUP(open_profiles, close_profiles)
