/* SPDX-License-Identifier: MIT */
/* Volume options from everywhere: the table, the configuration file, mount -o, kernel command line.
 */
#include "test.h"
#include "config/cmdline.h"
#include "config/conf.h"
#include "config/mntopts.h"
#include "config/options.h"
#include "config/volopt.h"

static char why[512];

/* ---- the table ---- */

TEST(test_table)
{
	assert_true(VOLOPTS < OPTIONS_MAX - 16); /* the programs' own follow */
	assert_int_equal(volopt_find("ra", 2), VOLOPTS);
	assert_int_equal(volopt_find("ramm", 4), VOLOPTS);
	assert_int_equal(volopt_find("ramm", 3), VOLOPT_RAM);
	assert_int_equal(volopt_find("", 0), VOLOPTS);
}

TEST(test_operands)
{
	static const struct option_spec specs[] = { { 0, "size", "BYTES", "" },
						    { 1, "all", NULL, "" },
						    { 0 } };
	const char *const argv[] = { "one", "--size=3", "two",	 "--size",
				     "4",   "three",	"--all", "four" };
	const char *const more[] = { "--size=a=b", "-", "--", "--all" };
	const char *const bad[] = { "--siz=4", "--sizes=4", "--all=1", "-x", "--=", "-size" };
	static struct options o;

	assert_int_equal(
		options_parse(ARRAY_SIZE(argv), (char *const *)argv, specs, &o, why, sizeof(why)),
		0);
	assert_int_equal(o.operands, 4);
	assert_string_equal(o.operand[1], "two");
	assert_string_equal(o.operand[3], "four");
	assert_string_equal(o.value[0], "4");
	assert_int_equal(options_parse(4, (char *const *)argv, specs, &o, why, sizeof(why)),
			 -EINVAL);
	assert_string_equal(why, "--size needs an argument: BYTES");
	assert_int_equal(options_parse(4, (char *const *)more, specs, &o, why, sizeof(why)), 0);
	assert_string_equal(o.value[0], "a=b");
	assert_null(o.value[1]);
	assert_int_equal(o.operands, 2);
	assert_string_equal(o.operand[0], "-");
	assert_string_equal(o.operand[1], "--all");
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(
			options_parse(1, (char *const *)bad + i, specs, &o, why, sizeof(why)),
			-EINVAL);
}

TEST(test_values)
{
	static const struct {
		enum volopt id;
		const char *text;
		bool good;
		uint64_t value;
	} cases[] = {
		{ VOLOPT_RAM, "64M", true, 64 * MIB },
		{ VOLOPT_RAM, "0", false, 0 },
		{ VOLOPT_RAM, "0%", false, 0 },
		{ VOLOPT_RAM, "", false, 0 },
		{ VOLOPT_RAM, "101%", false, 0 },
		{ VOLOPT_RAM, "64Q", false, 0 },
		{ VOLOPT_RAM, "64 M", false, 0 },
		{ VOLOPT_RAM, "-1", false, 0 },
		{ VOLOPT_RAM, "4000T", false, 0 },
		{ VOLOPT_ON_DETACH, "commit", true, ON_DETACH_COMMIT },
		{ VOLOPT_ON_DETACH, "discard", true, ON_DETACH_DISCARD },
		{ VOLOPT_ON_DETACH, "commit|discard", false, 0 },
		{ VOLOPT_ON_DETACH, "comm", false, 0 },
		{ VOLOPT_ON_DETACH, "commits", false, 0 },
		{ VOLOPT_ON_DETACH, "", false, 0 },
		{ VOLOPT_ON_DETACH, "|", false, 0 },
		{ VOLOPT_PRESSURE, "fail", true, PRESSURE_FAIL },
		{ VOLOPT_PRESSURE, "commit", true, PRESSURE_COMMIT },
		{ VOLOPT_PRESSURE, "discard", false, 0 },
		{ VOLOPT_NAME, "a.b-c_9", true, 0 },
		{ VOLOPT_NAME, ".a", false, 0 },
		{ VOLOPT_NAME, "a/b", false, 0 },
		{ VOLOPT_NAME, "", false, 0 },
		{ VOLOPT_LOG, "/dev/sdb3", true, 0 },
		{ VOLOPT_LOG, "", false, 0 },
		{ VOLOPT_AWAY_LIMIT, "5min", true, 300000000000 },
		{ VOLOPT_AWAY_LIMIT, "0", true, 0 },
		{ VOLOPT_AWAY_LIMIT, "forever", true, UINT64_MAX },
		{ VOLOPT_AWAY_LIMIT, "for ever", false, 0 },
		{ VOLOPT_AWAY_LIMIT, "8000h", false, 0 },
		{ VOLOPT_AWAY_LIMIT, "-1", false, 0 },
		{ VOLOPT_AWAY_LIMIT, "", false, 0 },
		{ VOLOPT_ERASE_BLOCK, "4K", true, 4 * KIB },
		{ VOLOPT_ERASE_BLOCK, "12M", true, 12 * MIB },
		{ VOLOPT_ERASE_BLOCK, "1G", true, GIB },
		{ VOLOPT_ERASE_BLOCK, "2G", false, 0 },
		{ VOLOPT_ERASE_BLOCK, "0", false, 0 },
		{ VOLOPT_ERASE_BLOCK, "5000", false, 0 },
		{ VOLOPT_PROFILE, "auto", true, 0 },
		{ VOLOPT_PROFILE, "none", true, 0 },
		{ VOLOPT_PROFILE, "x-slow-4g", true, 0 },
		{ VOLOPT_PROFILE, "/etc/cowfs/cards.conf", true, 0 },
		{ VOLOPT_PROFILE, "/etc/cowfs/cards.conf:my card", true, 0 },
		{ VOLOPT_PROFILE, "cards.conf:a", false, 0 },
		{ VOLOPT_PROFILE, "./cards.conf", false, 0 },
		{ VOLOPT_PROFILE, "/", false, 0 },
		{ VOLOPT_PROFILE, "a b", false, 0 },
		{ VOLOPT_PROFILE, "", false, 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		int e;

		why[0] = '\0';
		e = volopt_check(cases[i].id, cases[i].text, why, sizeof(why));
		if (e != (cases[i].good ? 0 : -EINVAL) || (e && !*why))
			fail_msg("%s=%s: %d %s", volopt_name(cases[i].id), cases[i].text, e, why);
		if (cases[i].good)
			assert_int_equal(volopt_value(cases[i].id, cases[i].text), cases[i].value);
	}
	assert_int_equal(volopt_check(VOLOPT_RAM, "10%", why, sizeof(why)), 0);
	assert_true(volopt_value(VOLOPT_RAM, "10%") > MIB);
}

/* ---- the file ---- */

static int parse(const char *text, size_t len, struct conf **ret)
{
	FILE *f = fmemopen((void *)text, len, "r");
	int e;

	assert_non_null(f);
	why[0] = '\0';
	e = conf_parse(f, "F", false, ret, why, sizeof(why));
	fclose(f);
	return e;
}

static struct conf *good(const char *text)
{
	struct conf *c = NULL;

	if (parse(text, strlen(text), &c) != 0)
		fail_msg("%s", why);
	return c;
}

static void refused(const char *text, const char *message)
{
	struct conf *c = NULL;

	assert_int_equal(parse(text, strlen(text), &c), -EINVAL);
	assert_null(c);
	if (!strstr(why, message))
		fail_msg("'%s' is told, not '%s'", why, message);
}

TEST(test_conf_good)
{
	struct conf *c = good("# comment\n; another\n\n"
			      "[default]  # here too\n"
			      "ram = 25%\n"
			      "  on-detach=discard\r\n"
			      "\t[data]\n"
			      "ram:64M\n"
			      "log = /dev/null ; why not\n"
			      "[empty]\n"
			      "[/dev/zero]\n"
			      "name = zero\n"
			      "erase-block = 8M");
	struct volopts v = { 0 }, given = { .text[VOLOPT_RAM] = "1M" }, zero = { 0 }, other = { 0 };

	assert_int_equal(conf_volume(c, "/dev/data", &v, why, sizeof(why)), 0);
	assert_string_equal(v.text[VOLOPT_RAM], "64M");
	assert_string_equal(v.text[VOLOPT_ON_DETACH], "discard");
	assert_string_equal(v.text[VOLOPT_LOG], "/dev/null");
	assert_null(v.text[VOLOPT_NAME]);
	/* the command line comes first, and names the section */
	given.text[VOLOPT_NAME] = "data";
	assert_int_equal(conf_volume(c, "/dev/else", &given, why, sizeof(why)), 0);
	assert_string_equal(given.text[VOLOPT_RAM], "1M");
	assert_string_equal(given.text[VOLOPT_LOG], "/dev/null");
	assert_int_equal(conf_volume(c, "/proc/self/root/dev/zero", &zero, why, sizeof(why)), 0);
	assert_string_equal(zero.text[VOLOPT_NAME], "zero");
	assert_string_equal(zero.text[VOLOPT_ERASE_BLOCK], "8M");
	assert_string_equal(zero.text[VOLOPT_RAM], "25%");
	assert_int_equal(conf_volume(c, "/dev/default", &other, why, sizeof(why)), 0);
	assert_string_equal(other.text[VOLOPT_RAM], "25%");
	assert_null(other.text[VOLOPT_LOG]);
	conf_free(c);
}

TEST(test_conf_root)
{
	struct conf *c = good("[default]\nram = 25%\n[root]\nprepare = shrink\nlog = /dev/x\n");
	struct volopts o = { 0 };

	assert_true(conf_has_root(c));
	assert_string_equal(conf_root_text(c, ROOTOPT_ENABLED), "yes");
	assert_string_equal(conf_root_text(c, ROOTOPT_PREPARE), "shrink");
	conf_root_options(c, &o);
	assert_string_equal(o.text[VOLOPT_LOG], "/dev/x");
	assert_string_equal(o.text[VOLOPT_RAM], "25%");
	conf_free(c);
	c = good("[/dev/null]\nenabled = no\nname = root\n");
	assert_true(conf_has_root(c));
	assert_string_equal(conf_root_text(c, ROOTOPT_ENABLED), "no");
	conf_free(c);
	c = good("[data]\nram = 1M\n");
	assert_false(conf_has_root(c));
	assert_string_equal(conf_root_text(c, ROOTOPT_PREPARE), "no");
	conf_free(c);
	refused("[root]\nenabled = maybe\n", "F:2: enabled = maybe is not one of yes|no");
	refused("[root]\nprepare = no\nprepare = no\n", "F:3: prepare is given twice");
	refused("[default]\nenabled = no\n", "F:2: enabled belongs to [root]");
	refused("[root]\ncompose = overlay\n", "F:1: compose = overlay in [root] needs lower");
	refused("[data]\ncompose = overlay\n", "F:2: compose belongs to [root]");
	refused("[root]\ncompose = overlay\nlower =\n",
		"F:1: compose = overlay in [root] needs lower");
	refused("[root]\nlower = x\n", "F:2: lower = x is not DEVICE");
	refused("[root]\nlower = /dev/../x\n", "F:2: lower = /dev/../x is not DEVICE");
	refused("[root]\nlower = UUID=:/a\n", "F:2: lower = UUID=:/a is not DEVICE");
	refused("[root]\nlower = =x\n", "F:2: lower = =x is not DEVICE");
	refused("[root]\nlower = /dev/x:/a/../b\n", "F:2: lower = /dev/x:/a/../b is not DEVICE");
	refused("[x]\n[/dev/null]\nprepare = shrink\nname = x\n",
		"F:2: prepare belongs to the volume root");
}

TEST(test_conf_errors)
{
	char line[1000];

	refused("ram = 64M\n", "F:1: ram must follow a [section]");
	refused("[default]\n\nrom = 64M\n", "F:3: unknown key rom");
	refused("compress = zstd\n", "F:1: compress must follow a [section]");
	conf_free(good("[a]\ncompress = zstd\ncompress = x\n"));
	refused("[a]\ncompress = zstd\nrom = 64M\n", "F:3: unknown key rom");
	refused("[default]\nram = 64M\nram = 32M\n", "F:3: ram is given twice in [default]");
	refused("[default]\nram = 64Q\n[x]\nnonsense\n", "F:2: ram = 64Q is not a size");
	refused("[default]\nram =\n", "F:2: ram =  is not a size");
	refused("[default]\nram = 64M # no\n", "F:2: ram = 64M # no is not a size");
	refused("[default]\nnonsense\n[x]\nram = 0\n", "F:2: neither [SECTION] nor KEY = VALUE");
	refused("[default]\nname = x\n", "F:2: name belongs to one volume");
	refused("[default]\nlog = /dev/null\n", "F:2: log belongs to one volume");
	refused("[a]\n[b]\nram=1M\n[a]\n", "F:4: section [a] is already in line 1");
	refused("[a]\nname = b\n", "F:2: [a] is named by its heading already");
	refused("[a]\nlog = sdb3\n", "F:2: log = sdb3 does not begin with /");
	refused("[a]\non-detach = drop\n", "F:2: on-detach = drop is not one of commit|discard");
	refused("[a\n", "F:1: a heading is [NAME]");
	refused("[a] ram = 1\n", "F:1: a heading is [NAME]");
	refused("[]\n", "F:1: [] is neither the name of a volume nor the path");
	refused("[a b]\n", "F:1: [a b] is neither");
	refused("[a]\n\x1b[31m\xff = 5\n", "F:2: unknown key ?[31m?");
	refused("\n=\n", "F:2: ");
	refused("\n = 5\n", "F:2: ");
	memset(line, 'x', sizeof(line));
	line[sizeof(line) - 1] = '\0';
	memcpy(line, "[a]\nlog=/", 9);
	refused(line, "F:2: the line is longer than");
	memcpy(line, "\xef\xbb\xbf[", 4);
	refused(line, "F:1: the line is longer than");
	conf_free(good("\xef\xbb\xbf[a]\nram=1M\n"));
	conf_free(good(""));
}

/* A line just as long as libinih's buffer: a full buffer must not join two lines. */
TEST(test_conf_texts)
{
	struct conf *c = good(
		"[default]\ncommit-interval = 2h\n[root]\nram = 20%\nvolatile = /tmp /var/tmp\n"
		"[/dev/zero]\nname = kiosk\ncommit-interval = 0\n[/dev/full]\ncommit-interval = 3h\n");

	assert_string_equal(conf_text(c, "full", ROOTOPT_COMMIT_INTERVAL), "3h");
	assert_string_equal(conf_text(c, "root", ROOTOPT_VOLATILE), "/tmp /var/tmp");
	assert_string_equal(conf_text(c, "root", ROOTOPT_COMMIT_INTERVAL), "2h");
	assert_string_equal(conf_text(c, "kiosk", ROOTOPT_COMMIT_INTERVAL), "0");
	assert_true(conf_has_volume(c, "kiosk") && conf_has_volume(c, "root"));
	assert_false(conf_has_volume(c, "zero") || conf_has_volume(c, "default"));
	assert_string_equal(conf_option(c, "root", VOLOPT_RAM), "20%");
	assert_null(conf_option(c, "kiosk", VOLOPT_RAM));
	conf_free(c);
	refused("[default]\nvolatile = /tmp\n", "F:2: volatile belongs to [root]");
	refused("[root]\nvolatile = /tmp tmp\n",
		"F:2: volatile = /tmp tmp is not a list of plain absolute paths");
	refused("[root]\nvolatile = /a/.\n",
		"F:2: volatile = /a/. is not a list of plain absolute paths");
	refused("[root]\nvolatile = /a\"b\n",
		"F:2: volatile = /a\"b is not a list of plain absolute paths");
	refused("[root]\nvolatile = /\n",
		"F:2: volatile = / is not a list of plain absolute paths");
	refused("[a]\ncommit-interval = 5 days\n",
		"F:2: commit-interval = 5 days is not a time such as 30m or 2h");
}

TEST(test_conf_long_lines)
{
	char text[600];
	struct volopts v;
	struct conf *c;

	for (int pad = 150; pad < 250; pad++) {
		int n = snprintf(text, sizeof(text), "[a]\nlog=/%0*d\nram=1M\n", pad, 1);

		if (parse(text, (size_t)n, &c) < 0) {
			assert_non_null(strstr(why, "F:2: the line is longer than"));
			assert_true(pad > 180);
			continue;
		}
		v = (struct volopts){ 0 };
		assert_int_equal(conf_volume(c, "/dev/a", &v, why, sizeof(why)), 0);
		assert_string_equal(v.text[VOLOPT_RAM], "1M");
		assert_int_equal(strlen(v.text[VOLOPT_LOG]), pad + 1);
		conf_free(c);
	}
}

TEST(test_conf_two_sections)
{
	struct conf *c = good("[/dev/zero]\nname=z\n[/proc/self/root/dev/zero]\n");
	struct volopts v = { 0 };

	assert_int_equal(conf_volume(c, "/dev/zero", &v, why, sizeof(why)), -EINVAL);
	assert_non_null(
		strstr(why, "F:1: [/dev/zero] is the same volume as [/proc/self/root/dev/zero]"));
	conf_free(c);
	c = good("[/dev/zero]\nname=z\n[z]\nram=1M\n");
	v = (struct volopts){ 0 };
	assert_int_equal(conf_volume(c, "/dev/zero", &v, why, sizeof(why)), -EINVAL);
	assert_non_null(strstr(why, "F:3: [z] is the same volume as [/dev/zero] in line 1"));
	conf_free(c);
}

TEST(test_conf_files)
{
	struct conf *c;

	setenv("COWFS_CONF", "/nonexistent/cowfs.conf", 1);
	assert_string_equal(conf_path(), "/nonexistent/cowfs.conf");
	assert_int_equal(conf_load(&c, why, sizeof(why)), 0);
	conf_free(c);
	setenv("COWFS_CONF", "/proc", 1);
	assert_int_equal(conf_load(&c, why, sizeof(why)), -EISDIR);
	assert_non_null(strstr(why, "/proc: "));
	unsetenv("COWFS_CONF");
	assert_string_equal(conf_path(), "/etc/cowfs/cowfs.conf");
}

/* ---- mount -o ---- */

TEST(test_mntopts)
{
	static struct mntopts m;

	assert_int_equal(
		mntopts_add(&m,
			    "rw,noatime,ram=64M,x-systemd.device-timeout=5,nofail,uid=5,"
			    "context=\"a,ram=1M,b\",on-detach=discard,helper=x,x-gvfs-show",
			    why, sizeof(why)),
		0);
	assert_string_equal(m.rest, "rw,noatime,nofail,uid=5,context=\"a,ram=1M,b\",x-gvfs-show");
	assert_string_equal(m.vol.text[VOLOPT_RAM], "64M");
	assert_string_equal(m.vol.text[VOLOPT_ON_DETACH], "discard");
	assert_false(m.readonly || m.discard || m.remount || m.dioread);
	assert_int_equal(
		mntopts_add(&m, "ro,ram=32M,,nodiscard,remount,dioread_nolock", why, sizeof(why)),
		0);
	assert_string_equal(m.vol.text[VOLOPT_RAM], "32M");
	assert_true(m.readonly && m.discard && m.remount && m.dioread);
	assert_int_equal(mntopts_add(&m, "rw", why, sizeof(why)), 0);
	assert_false(m.readonly);
	assert_non_null(strstr(m.rest, ",ro,nodiscard,remount,dioread_nolock,rw"));
	/* an earlier version had it */
	assert_int_equal(mntopts_add(&m, "compress=zstd,compress", why, sizeof(why)), 0);
	assert_null(strstr(m.rest, "compress"));
	assert_int_equal(mntopts_add(&m, "compress-force=zstd", why, sizeof(why)), 0);
	assert_non_null(strstr(m.rest, "rw,compress-force=zstd"));
	assert_int_equal(mntopts_add(&m, "ram", why, sizeof(why)), -EINVAL);
	assert_string_equal(why, "ram needs a value: ram=...");
	assert_int_equal(mntopts_add(&m, "noatime,ram=", why, sizeof(why)), -EINVAL);
	assert_int_equal(mntopts_add(&m, "name=a b", why, sizeof(why)), -EINVAL);
	assert_non_null(strstr(why, "name=a b is not a valid volume name"));
	assert_string_equal(m.vol.text[VOLOPT_RAM], "32M");
}

TEST(test_mntopts_too_many)
{
	static struct mntopts m, full;
	char text[1001], one[MNTOPTS_BYTES];
	int e = 0, n = 0;

	memset(one, 'x', sizeof(one));
	one[sizeof(one) - 1] = '\0';
	assert_int_equal(mntopts_pass(&full, one), -E2BIG);
	one[sizeof(one) - 2] = '\0';
	assert_int_equal(mntopts_pass(&full, one), 0);
	assert_string_equal(full.rest, one);
	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	while (e == 0 && n++ < 10)
		e = mntopts_add(&m, text, why, sizeof(why));
	assert_int_equal(e, -EINVAL);
	assert_int_equal(n, 5);
	assert_string_equal(why, "too many options");
	assert_int_equal(strlen(m.rest), 4 * 1000 + 3);
	memcpy(text, "log=/", 5);
	for (n = 0, e = 0; e == 0 && n < 10; n++)
		e = mntopts_add(&m, text, why, sizeof(why));
	assert_int_equal(e, -EINVAL);
}

/* ---- the kernel command line ---- */

TEST(test_cmdline)
{
	static struct cmdline c;

	assert_int_equal(cmdline_parse("BOOT_IMAGE=/vmlinuz root=/dev/mmcblk0p2 ro quiet\n", &c,
				       why, sizeof(why)),
			 0);
	assert_int_equal(c.mode, CMDLINE_UNSET);
	assert_int_equal(cmdline_parse("ro cowfs=on", &c, why, sizeof(why)), 0);
	assert_int_equal(c.mode, CMDLINE_ON);
	assert_int_equal(cmdline_parse("cowfs=on ro cowfs=off", &c, why, sizeof(why)), 0);
	assert_int_equal(c.mode, CMDLINE_OFF);
	assert_int_equal(cmdline_parse("  cowfs=ram:256M,discard  cowfs=on,pressure:fail\t", &c,
				       why, sizeof(why)),
			 0);
	assert_int_equal(c.mode, CMDLINE_ON);
	assert_string_equal(c.opt.text[VOLOPT_RAM], "256M");
	assert_string_equal(c.opt.text[VOLOPT_ON_DETACH], "discard");
	assert_string_equal(c.opt.text[VOLOPT_PRESSURE], "fail");
	assert_true(c.opt.text[VOLOPT_RAM] > c.buf &&
		    c.opt.text[VOLOPT_RAM] < c.buf + sizeof(c.buf));
	assert_int_equal(cmdline_parse("cowfs=ram:64M cowfs=ram:10%,,", &c, why, sizeof(why)), 0);
	assert_string_equal(c.opt.text[VOLOPT_RAM], "10%");
	assert_null(c.opt.text[VOLOPT_ON_DETACH]);
	assert_int_equal(
		cmdline_parse("cowfs=lower:/dev/x:/a,new-lower:keep", &c, why, sizeof(why)), 0);
	assert_string_equal(c.root_text[ROOTOPT_LOWER], "/dev/x:/a");
	assert_in_range((uintptr_t)c.root_text[ROOTOPT_LOWER], (uintptr_t)c.buf,
			(uintptr_t)c.buf + sizeof(c.buf));
	assert_string_equal(c.root_text[ROOTOPT_NEW_LOWER], "keep");
	assert_null(c.root_text[ROOTOPT_COMPOSE]);
	/* not for cowfs */
	assert_int_equal(
		cmdline_parse("mycowfs=off xcowfs=on \"cowfs=off\" a=\"b cowfs=off c\" cowfs "
			      "cowfs. cowfs= -- cowfs=off",
			      &c, why, sizeof(why)),
		0);
	assert_int_equal(c.mode, CMDLINE_UNSET);
	assert_int_equal(cmdline_parse("", &c, why, sizeof(why)), 0);
}

TEST(test_cmdline_errors)
{
	static struct cmdline c;
	static const struct {
		const char *line, *message;
	} cases[] = {
		{ "cowfs=on,maybe", "cowfs=maybe is unknown: use on, off, discard or ram:SIZE" },
		{ "cowfs=ON cowfs=on", "cowfs=ON is unknown" },
		{ "cowfs=new-lower:x,on", "cowfs=new-lower:x is not refuse|fresh|keep" },
		{ "cowfs=new-lower,on", "cowfs=new-lower is not NAME:VALUE" },
		{ "cowfs=new-lower-x:keep,on", "is unknown" },
		{ "cowfs=ram,on", "cowfs=ram needs a value" },
		{ "cowfs=ram:,on", "cowfs=ram: is not a size" },
		{ "cowfs=ram:0,on", "cowfs=ram:0 leaves no memory" },
		{ "cowfs=on,ram=64M", "cowfs=ram=64M is unknown" },
		{ "cowfs=name:x,on", "cowfs=name:x is not allowed at boot" },
		{ "cowfs=log:/dev/sdb,on", "is not allowed at boot" },
		{ "cowfs=:,on", "cowfs=: is unknown" },
		{ "cowfs=compress:zstd,on", "cowfs=compress:zstd was removed: " },
		{ "cowfs=on:1,on", "cowfs=on:1 is unknown" },
		{ "cowfs=on --x cowfs=bad", "cowfs=bad is unknown" },
	};
	char line[2000];

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		why[0] = '\0';
		assert_int_equal(cmdline_parse(cases[i].line, &c, why, sizeof(why)), -EINVAL);
		if (!strstr(why, cases[i].message))
			fail_msg("%s: '%s' is told", cases[i].line, why);
		assert_int_equal(c.mode, CMDLINE_ON);
	}
	assert_int_equal(
		cmdline_parse("cowfs=ram:x,discard cowfs=of,pressure:fail", &c, why, sizeof(why)),
		-EINVAL);
	assert_int_equal(c.mode, CMDLINE_UNSET);
	assert_null(c.opt.text[VOLOPT_RAM]);
	assert_string_equal(c.opt.text[VOLOPT_ON_DETACH], "discard");
	assert_string_equal(c.opt.text[VOLOPT_PRESSURE], "fail");
	assert_non_null(strstr(why, "cowfs=ram:x"));
	memset(line, ',', sizeof(line));
	memcpy(line, "cowfs=", 6);
	for (size_t n = 500; n < 530; n++) {
		line[n] = '\0';
		assert_int_equal(cmdline_parse(line, &c, why, sizeof(why)), n < 518 ? 0 : -EINVAL);
		line[n] = ',';
	}
}
