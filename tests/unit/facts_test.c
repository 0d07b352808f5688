/* SPDX-License-Identifier: MIT */
/* The file of facts, and answers whose names it replaces: as they are, damaged, and made by somebody who wants to be believed. */
#include "test.h"
#include "workdir.h"

#include <sys/sysmacros.h>

#include "wire/decode.h"
#include "wire/json.h"

#define NAME "vol"

static int run_fd = -1;
static struct rundir run = { -1, -1, -1, NAME };

static int make_folder(void **state)
{
	(void)state;
	if (workdir_new("facts") < 0)
		return -1;
	run_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (mkdirat(run_fd, NAME, 0700) < 0)
		return -1;
	run.fd = openat(run_fd, NAME, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return run.fd < 0 ? -1 : 0;
}

static void file_says(const char *text, size_t len)
{
	assert_int_equal(rundir_publish(&run, RUNDIR_FACTS, text, len), 0);
}

/* Their text is the whole file. */
static struct facts facts_of(const char *text)
{
	struct facts f;

	file_says(text, strlen(text));
	assert_int_equal(facts_read(run_fd, NAME, true, &f), 0);
	return f;
}

static bool is_empty(const struct facts *f)
{
	bool empty = !f->supervisor;

	for (enum fact i = 0; i < FACT_DEVICES; i++)
		empty &= !f->device[i].rdev && !f->device[i].path[0];
	return empty;
}

TEST(test_written_and_read)
{
	struct facts f = { .supervisor = 1234 }, again;
	char path[300];

	memset(path, 'x', sizeof(path));
	memcpy(path, "/dev/", 5);
	path[sizeof(path) - 1] = '\0';
	facts_set(&f, FACT_DEVICE, "/dev/a b  c", makedev(8, 17), UINT64_MAX);
	facts_set(&f, FACT_LOG_DEVICE, path, makedev(4095, 0xfffff), 4096);
	facts_set(&f, FACT_LOOP, "/dev/loop7\ndevice 1:1 1 /dev/zero", makedev(7, 7), 0);
	assert_int_equal(facts_write(&run, &f), 0);
	assert_int_equal(facts_read(run_fd, NAME, true, &again), 0);
	assert_int_equal(again.supervisor, 1234);
	for (enum fact i = 0; i < FACT_DEVICES; i++) {
		assert_int_equal(again.device[i].rdev, f.device[i].rdev);
		assert_int_equal(again.device[i].bytes, f.device[i].bytes);
		assert_string_equal(again.device[i].path, f.device[i].path);
	}
	assert_string_equal(again.device[FACT_DEVICE].path, "/dev/a b  c");
	/* what would not fit a line is named by its number */
	assert_string_equal(again.device[FACT_LOG_DEVICE].path, "/dev/block/4095:1048575");
	assert_string_equal(again.device[FACT_LOOP].path, "/dev/block/7:7");
	facts_set(&f, FACT_LOOP, NULL, makedev(7, 7), 5);
	assert_int_equal(f.device[FACT_LOOP].rdev, 0);
	assert_string_equal(f.device[FACT_LOOP].path, "");
}

TEST(test_no_facts)
{
	static const char *const texts[] = {
		"",
		"\n\n\n",
		"device",
		"device\n",
		"device \n",
		"device 8\n",
		"device 8:\n",
		"device 8:1\n",
		"device 8:1 \n",
		"device 8:1 x /dev/sda1\n",
		"device a:b 1 /dev/sda1\n",
		" device 8:1 1 /dev/sda1\n",
		"devicex 8:1 1 /dev/sda1\n",
		"Device 8:1 1 /dev/sda1\n",
		"mountpoint 8:1 1 /etc\n",
		"name 8:1 1 root\n",
		"supervisor\nsupervisor x\n",
		"{\"device\":\"/dev/sda1\",\"loop\":\"/dev/loop0\"}\n"
	};
	struct facts f;

	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		f = facts_of(texts[i]);
		if (!is_empty(&f))
			print_error("%s\n", texts[i]);
		assert_true(is_empty(&f));
		assert_false(facts_is(&f.device[FACT_DEVICE], ""));
	}
	assert_int_equal(unlinkat(run.fd, RUNDIR_FACTS, 0), 0);
	memset(&f, 0xff, sizeof(f));
	assert_int_equal(facts_read(run_fd, NAME, true, &f), -ENOENT);
	assert_true(is_empty(&f));
}

/* A file that was cut anywhere has a part of the facts, and no other ones. */
TEST(test_cut)
{
	static const char text[] = "supervisor 77\ndevice 8:17 629145600 /dev/sdb1\n"
				   "log_device 8:33 4194304 /dev/sdc1\nloop 7:3 0 /dev/loop3\n";

	for (size_t n = 0; n < sizeof(text); n++) {
		struct facts f;

		file_says(text, n);
		assert_int_equal(facts_read(run_fd, NAME, true, &f), 0);
		for (enum fact i = 0; i < FACT_DEVICES; i++)
			assert_int_equal(strncmp(f.device[i].path,
						 (const char *[]){ "/dev/sdb1", "/dev/sdc1",
								   "/dev/loop3" }[i],
						 strlen(f.device[i].path)),
					 0);
	}
}

/* A disk counts while a file of this name is behind it. */
TEST(test_disk_of_another)
{
	struct facts f;

	file_says("loop 1:0 0 /dev/ram0\n", 21);
	assert_int_equal(facts_read(run_fd, NAME, false, &f), 0);
	assert_true(is_empty(&f));
	assert_int_equal(facts_read(run_fd, NAME, true, &f), 0);
	assert_int_equal(f.device[FACT_LOOP].rdev, makedev(1, 0));
}

/* ---- answers ---- */

static struct json_object *decode(const char *text)
{
	return answer_decode(text, strlen(text), run_fd, NAME);
}

TEST(test_not_an_object)
{
	static const char *const texts[] = { "",       " ",	  "null",     "7",
					     "\"{}\"", "[]",	  "[{}]",     "{",
					     "}",      "{\"a\":", "{\"a\"}",  "{,}",
					     "\x01{}", "nan",	  "{a:1}x\"", "{\"a\":\"\\u12\"}" };
	char deep[400];

	file_says("", 0);
	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
		assert_null(decode(texts[i]));
	memset(deep, '[', sizeof(deep));
	deep[sizeof(deep) - 1] = '\0';
	memcpy(deep, "{\"a\":", 5);
	assert_null(decode(deep));
}

TEST(test_names_are_of_the_file)
{
	struct json_object *o;

	file_says("supervisor 1\ndevice 8:17 4096 /dev/sdb1\n", 40);
	o = decode(
		"{\"ok\":true,\"device\":\"/dev/sda\",\"log_device\":[\"/dev/sda\"],\"loop\":{\"a\":1},"
		"\"name\":\"root\",\"mountpoint\":\"/etc\",\"lower\":\"/\",\"mountpoint\":\"/\",\"device\":7}");
	assert_string_equal(json_fact(o, FACT_DEVICE), "/dev/sdb1");
	assert_string_equal(json_fact(o, FACT_LOG_DEVICE), "");
	assert_string_equal(json_fact(o, FACT_LOOP), "");
	assert_string_equal(json_fact(o, FACT_NAME), NAME);
	assert_string_equal(json_fact(o, FACT_MOUNTPOINT), "");
	assert_string_equal(json_fact(o, FACT_LOWER), "");
	json_object_put(o);
	/* an answer that names nothing gets no names */
	o = decode("{\"ok\":true}");
	assert_false(json_object_object_get_ex(o, "device", NULL));
	json_object_put(o);
}

TEST(test_other_forms_go)
{
	char text[4096] =
		"{\"report\":[1],\"history\":{\"commits\":7,\"days\":{\"a\":1},\"x\":[1]},\"views\":\"many\","
		"\"views\":{\"list\":[{\"name\":\"a\",\"b\":{},\"c\":[]},[[1],[{}]],null,{\"b\":{}}]},\"ram\":{\"a\":1},"
		"\"held\":{\"held\":{\"a\":1},\"generation\":{\"a\":2}},\"away\":null,\"away card\":{\"a\":1},\" \":[],\"\":[],\"";
	struct json_object *o;
	size_t n = strlen(text);

	/* a name that is longer than any of ours, and one with a point */
	memset(text + n, 'k', 200);
	strcpy(text + n + 200,
	       "\":1,\"a.b\":{\"c\":1},\"last.report\":{\"d\":1},\"alarm\":\"\\u001b[2J\\u202e\xff\"}");
	file_says("", 0);
	o = decode(text);
	assert_non_null(o);
	assert_null(json_at(o, "report"));
	assert_null(json_at(o, "history.commits"));
	assert_null(json_at(o, "history.days"));
	assert_null(json_at(o, "history.x"));
	assert_null(json_at(o, "ram"));
	assert_null(json_at(o, "held.held"));
	assert_null(json_at(o, "away card"));
	assert_null(json_object_object_get(o, " "));
	assert_null(json_object_object_get(o, ""));
	assert_int_equal(json_u64(json_at(o, "held"), "generation"), 0);
	assert_true(json_object_is_type(json_at(o, "views.list"), json_type_array));
	assert_null(json_object_object_get(json_object_array_get_idx(json_at(o, "views.list"), 0),
					   "b"));
	assert_null(json_object_object_get(json_object_array_get_idx(json_at(o, "views.list"), 3),
					   "b"));
	assert_string_equal(
		json_text(json_object_array_get_idx(json_at(o, "views.list"), 0), "name"), "a");
	assert_null(json_object_object_get(o, "a.b"));
	assert_null(strpbrk(json_text(o, "alarm"), "\033\xff"));
	json_object_object_foreach(o, key, value)
	{
		(void)value;
		assert_true(strlen(key) < 64);
	}
	json_object_put(o);
}

TEST_GROUP(make_folder, workdir_remove)
