/* SPDX-License-Identifier: MIT */
#include "wear/health.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

#include "base/io.h"
#include "card/sdcmd.h"

enum { SMART_TIMEOUT_MS = 30000, END_TIMEOUT_MS = 2000, SMART_BYTES = 1024 * 1024 };

extern char **environ;

/* ---- fields ---- */

static struct json_object *number(double v)
{
	char text[32];

	snprintf(text, sizeof(text), "%.6g", v);
	return json_object_new_double_s(v, text);
}

static void set_text(struct json_object *o, const char *key, const char *text)
{
	json_object_object_add(o, key, json_object_new_string(text));
}

static void set_u64(struct json_object *o, const char *key, uint64_t v)
{
	json_object_object_add(o, key, json_object_new_uint64(v));
}

static bool get_u64(struct json_object *o, const char *key, uint64_t *ret)
{
	struct json_object *v;

	if (!o || !json_object_object_get_ex(o, key, &v) || !json_object_is_type(v, json_type_int))
		return false;
	*ret = json_object_get_uint64(v);
	return true;
}

static const char *get_text(struct json_object *o, const char *key)
{
	struct json_object *v = o ? json_object_object_get(o, key) : NULL;

	return v && json_object_is_type(v, json_type_string) ? json_object_get_string(v) : "";
}

/* A share of the rated life, as an interval: devices report it in steps. */
static void add_used(struct json_object *health, const char *part, double low, double high,
		     const char *raw)
{
	struct json_object *u = json_object_new_object();

	set_text(u, "part", part);
	json_object_object_add(u, "low", number(low < 0 ? 0 : low));
	json_object_object_add(u, "high", number(high));
	set_text(u, "raw", raw);
	json_object_array_add(json_object_object_get(health, "life_used"), u);
}

static struct json_object *empty(void)
{
	struct json_object *h = json_object_new_object();

	if (!h)
		return NULL;
	set_text(h, "kind", "unknown");
	set_text(h, "disk", "");
	set_text(h, "model", "");
	set_u64(h, "disk_bytes", 0);
	set_text(h, "source", "");
	set_text(h, "unknown_because", "");
	json_object_object_add(h, "life_used", json_object_new_array());
	set_text(h, "pre_eol", "unknown");
	json_object_object_add(h, "host_written_bytes", NULL);
	json_object_object_add(h, "flash_written_bytes", NULL);
	json_object_object_add(h, "erase_cycles", NULL);
	json_object_object_add(h, "spare", NULL);
	json_object_object_add(h, "media_errors", NULL);
	json_object_object_add(h, "passed", NULL);
	json_object_object_add(h, "attributes", json_object_new_array());
	return h;
}

/* ---- eMMC: JEDEC EXT_CSD by sysfs ---- */

/* "0x01 0x02": part A and B in steps of a tenth, 0x0b beyond the rated life. 0x00: not defined. */
static bool emmc_life(struct json_object *health, const char *text)
{
	unsigned v[2] = { 0 };
	bool any = false;

	if (sscanf(text, "%x %x", &v[0], &v[1]) != 2)
		return false;
	for (int i = 0; i < 2; i++) {
		char raw[16];

		if (!v[i] || v[i] > 11)
			continue;
		snprintf(raw, sizeof(raw), "0x%02x", v[i]);
		/* beyond the rated life the step has no upper limit */
		add_used(health, i ? "b" : "a", (v[i] - 1) / 10.0, v[i] > 10 ? 2 : v[i] / 10.0,
			 raw);
		any = true;
	}
	return any;
}

static const char *pre_eol_state(const char *text)
{
	static const char *const states[] = { "unknown", "normal", "warning", "urgent" };
	unsigned long v = strtoul(text, NULL, 16);

	return v < ARRAY_SIZE(states) ? states[v] : "unknown";
}

static void read_emmc(struct json_object *health, int dir)
{
	char text[64];
	bool any = io_read_text(dir, "device/life_time", text, sizeof(text)) > 0 &&
		   emmc_life(health, text);

	if (io_read_text(dir, "device/pre_eol_info", text, sizeof(text)) > 0) {
		set_text(health, "pre_eol", pre_eol_state(text));
		any = any || strcmp(pre_eol_state(text), "unknown") != 0;
	}
	if (any)
		set_text(health, "source", "sysfs: life_time, pre_eol_info");
	else
		set_text(health, "unknown_because",
			 "the eMMC does not report it (older than version 5.0, or not defined)");
}

/* ---- SD: vendors' answers to CMD56 ---- */

static bool percent_used(struct json_object *health, const char *part, unsigned percent,
			 const char *what)
{
	char raw[48];

	if (percent > 200)
		return false;
	snprintf(raw, sizeof(raw), "%s %u %%", what, percent);
	add_used(health, part, percent ? (percent - 1) / 100.0 : 0, percent / 100.0, raw);
	return true;
}

static uint32_t le32(const uint8_t *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

enum { ARG_GENERAL = 1, ARG_MICRON = 0x110005fb, ARG_SWISSBIT = 0x53420001 };

bool health_from_cmd56(struct json_object *health, uint32_t arg, const uint8_t data[512])
{
	if (arg == ARG_GENERAL && data[0] == 'D' && (data[1] == 'S' || data[1] == 'W'))
		return percent_used(health, "all", data[8], "used (SanDisk)");
	if (arg == ARG_GENERAL && data[0] == 0x70 && data[1] == 0x58 && le32(data + 44) <= 100)
		return percent_used(health, "all", 100 - le32(data + 44), "used (Longsys)");
	if (arg == ARG_MICRON && data[0] == 'M' && data[1] == 'E')
		return percent_used(health, "tlc", data[8], "used (Micron)") &&
		       percent_used(health, "slc", data[9], "used (Micron)");
	if (arg == ARG_SWISSBIT && data[0] == 'S' && data[1] == 'w' && data[80] <= 100)
		return percent_used(health, "all", 100u - data[80], "used (Swissbit)");
	return false;
}

static void read_sd(struct json_object *health, const char *disk, bool cmd56)
{
	static const uint32_t args[] = { ARG_GENERAL, ARG_MICRON, ARG_SWISSBIT };
	uint8_t data[512];
	char text[160];
	int r = 0;

	if (!cmd56) {
		set_text(health, "unknown_because",
			 "SD cards have no standard for it; --cmd56 uses a vendor's command");
		return;
	}
	for (size_t i = 0; i < ARRAY_SIZE(args); i++) {
		r = sdcmd_read56(disk, args[i], data);
		if (r == 0 && health_from_cmd56(health, args[i], data)) {
			set_text(health, "source", "CMD56");
			return;
		}
	}
	if (r < 0)
		snprintf(text, sizeof(text), "the card does not answer CMD56: %s",
			 strerrordesc_np(-r));
	else
		snprintf(text, sizeof(text), "the card's answer to CMD56 has an unknown format");
	set_text(health, "unknown_because", text);
}

/* ---- ATA, NVMe: smartctl ---- */

struct attribute {
	uint64_t id, value, raw;
	const char *name;
};

static bool get_attribute(struct json_object *o, struct attribute *ret)
{
	*ret = (struct attribute){ .name = get_text(o, "name") };
	return get_u64(o, "id", &ret->id) && get_u64(o, "value", &ret->value) &&
	       get_u64(json_object_object_get(o, "raw"), "value", &ret->raw);
}

/* "..._32MiB", "..._GiB", "..._LBAs..." as smartctl's database names them; 0: unknown unit */
static uint64_t unit_of(const char *name)
{
	if (strstr(name, "32MiB"))
		return 32 * MIB;
	if (strstr(name, "GiB"))
		return GIB;
	return strstr(name, "LBAs") ? 512 : 0;
}

static bool is_in(const char *name, const char *const *list, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (strstr(name, list[i]))
			return true;
	return false;
}

struct ata {
	uint64_t host, flash, average, most, least, rated, spare;
	bool used;
};

static void take_attribute(struct json_object *health, const struct attribute *a, struct ata *s)
{
	static const char *const host[] = { "Host_Writes", "Total_LBAs_Written",
					    "Lifetime_Writes_GiB", "Total_Writes_GiB" };
	static const char *const flash[] = { "Flash_Writes", "NAND_Writes", "TLC_Writes",
					     "SLC_Writes" };
	static const char *const left[] = { "SSD_Life_Left", "Media_Wearout_Indicator",
					    "Percent_Lifetime_Remain", "Wear_Leveling_Count",
					    "Remaining_Lifetime_Perc" };
	uint64_t unit = unit_of(a->name);
	char raw[96];

	if (unit && is_in(a->name, flash, ARRAY_SIZE(flash)))
		s->flash += a->raw * unit;
	else if (unit && is_in(a->name, host, ARRAY_SIZE(host)))
		s->host = a->raw * unit;
	else if (strstr(a->name, "Average_Erase_Count"))
		s->average = a->raw;
	else if (strstr(a->name, "Max_Erase_Count_of_Spec"))
		s->rated = a->raw;
	else if (strstr(a->name, "Max_Erase_Count"))
		s->most = a->raw;
	else if (strstr(a->name, "Min_Erase_Count"))
		s->least = a->raw;
	else if (strstr(a->name, "Valid_Spare_Block"))
		s->spare = a->raw;
	else if (strstr(a->name, "Percent_Lifetime_Used") && a->raw <= 200 && !s->used)
		s->used = percent_used(health, "all", (unsigned)a->raw, a->name);
	if (is_in(a->name, left, ARRAY_SIZE(left)) && a->value <= 100 && !s->used) {
		/*
		 * for this attribute the raw value is the remaining life in %; for the others the
		 * normalized value is
		 */
		uint64_t percent = strstr(a->name, "Remaining_Lifetime") && a->raw <= 100
					   ? a->raw
					   : a->value;

		snprintf(raw, sizeof(raw), "%s %llu", a->name, (unsigned long long)percent);
		add_used(health, "all", (double)(100 - percent) / 100 - 0.01,
			 (double)(100 - percent) / 100, raw);
		s->used = true;
	}
}

static void keep_attribute(struct json_object *health, const struct attribute *a)
{
	struct json_object *o = json_object_new_object();

	set_u64(o, "id", a->id);
	set_text(o, "name", a->name);
	set_u64(o, "value", a->value);
	set_u64(o, "raw", a->raw);
	json_object_array_add(json_object_object_get(health, "attributes"), o);
}

static bool smart_ata(struct json_object *health, struct json_object *table)
{
	struct ata s = { 0 };
	size_t n = json_object_is_type(table, json_type_array) ? json_object_array_length(table)
							       : 0;

	for (size_t i = 0; i < n; i++) {
		struct attribute a;

		if (!get_attribute(json_object_array_get_idx(table, i), &a))
			continue;
		keep_attribute(health, &a);
		take_attribute(health, &a, &s);
	}
	if (s.host)
		set_u64(health, "host_written_bytes", s.host);
	if (s.flash)
		set_u64(health, "flash_written_bytes", s.flash);
	if (s.average || s.most) {
		struct json_object *e = json_object_new_object();

		set_u64(e, "average", s.average);
		set_u64(e, "least", s.least);
		set_u64(e, "most", s.most);
		json_object_object_add(e, "rated",
				       s.rated ? json_object_new_uint64(s.rated) : NULL);
		json_object_object_add(health, "erase_cycles", e);
	}
	if (s.rated && s.average && !s.used) {
		char raw[64];

		snprintf(raw, sizeof(raw), "%llu of %llu erase cycles",
			 (unsigned long long)s.average, (unsigned long long)s.rated);
		add_used(health, "all", (double)s.average / (double)s.rated,
			 (double)(s.average + 1) / (double)s.rated, raw);
	}
	if (s.spare) {
		struct json_object *p = json_object_new_object();

		set_u64(p, "blocks", s.spare);
		json_object_object_add(health, "spare", p);
	}
	return n > 0;
}

static bool smart_nvme(struct json_object *health, struct json_object *log)
{
	struct json_object *p = json_object_new_object();
	uint64_t v, threshold;
	char raw[48];

	if (get_u64(log, "percentage_used", &v)) {
		snprintf(raw, sizeof(raw), "percentage_used %llu", (unsigned long long)v);
		add_used(health, "all", v ? (double)(v - 1) / 100 : 0, (double)v / 100, raw);
	}
	if (get_u64(log, "data_units_written", &v))
		set_u64(health, "host_written_bytes", v * 512000);
	if (get_u64(log, "media_errors", &v))
		set_u64(health, "media_errors", v);
	if (get_u64(log, "available_spare", &v) &&
	    get_u64(log, "available_spare_threshold", &threshold)) {
		set_u64(p, "percent", v);
		set_u64(p, "threshold_percent", threshold);
		json_object_object_add(health, "spare", json_object_get(p));
	}
	json_object_put(p);
	return true;
}

bool health_from_smart(struct json_object *health, struct json_object *smart)
{
	struct json_object *log, *passed;
	bool any = false;

	if (!json_object_is_type(smart, json_type_object))
		return false;
	if (*get_text(smart, "model_name"))
		set_text(health, "model", get_text(smart, "model_name"));
	if (json_object_object_get_ex(smart, "nvme_smart_health_information_log", &log)) {
		set_text(health, "kind", "nvme");
		any = smart_nvme(health, log);
	}
	if (json_object_object_get_ex(smart, "ata_smart_attributes", &log)) {
		set_text(health, "kind", "ata");
		any |= smart_ata(health, json_object_object_get(log, "table"));
	}
	passed = json_object_object_get(json_object_object_get(smart, "smart_status"), "passed");
	if (passed && json_object_is_type(passed, json_type_boolean)) {
		json_object_object_add(health, "passed", json_object_get(passed));
		any = true;
	}
	return any;
}

/* Reads the output of the program within the time. Returns its length, or -errno. */
static ssize_t read_output(int fd, char *buf, size_t size_bytes)
{
	uint64_t end_ns = now_ns() + SMART_TIMEOUT_MS * 1000000ull;
	size_t len = 0;

	while (len + 1 < size_bytes) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		uint64_t now = now_ns();
		ssize_t n;

		if (now >= end_ns || poll(&p, 1, (int)((end_ns - now) / 1000000) + 1) <= 0)
			return -ETIMEDOUT;
		n = read(fd, buf + len, size_bytes - 1 - len);
		if (n < 0)
			return -errno;
		if (!n)
			break;
		len += (size_t)n;
	}
	buf[len] = '\0';
	return (ssize_t)len;
}

/* A program that hangs in a command to a dying disk cannot be ended, so nothing waits for it. */
static void end_program(pid_t pid, bool now)
{
	uint64_t end_ns = now_ns() + END_TIMEOUT_MS * 1000000ull;

	if (now)
		kill(pid, SIGKILL);
	while (waitpid(pid, NULL, WNOHANG) == 0 && now_ns() < end_ns)
		usleep(1000);
}

static ssize_t run_smartctl(const char *disk, char *buf, size_t size_bytes)
{
	const char *program = getenv("COWFS_SMARTCTL");
	char *argv[] = { (char *)(program ? program : "smartctl"), (char *)"--json", (char *)"-a",
			 (char *)disk, NULL };
	posix_spawn_file_actions_t actions;
	int fd[2], r;
	ssize_t n;
	pid_t pid;

	if (pipe2(fd, O_CLOEXEC) < 0)
		return -errno;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&actions, fd[1], STDOUT_FILENO);
	posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
	r = -posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	close(fd[1]);
	n = r < 0 ? r : read_output(fd[0], buf, size_bytes);
	close(fd[0]);
	if (r == 0)
		end_program(pid, n < 0);
	return n;
}

static void read_smart(struct json_object *health, const char *disk)
{
	_cleanup_free_ char *text = malloc(SMART_BYTES);
	struct json_object *smart = NULL;
	ssize_t n = text ? run_smartctl(disk, text, SMART_BYTES) : -ENOMEM;

	if (n >= 0)
		smart = json_tokener_parse(text);
	if (smart && health_from_smart(health, smart))
		set_text(health, "source", "smartctl");
	else if (n == -ENOENT)
		set_text(health, "unknown_because",
			 "smartctl is not installed (package smartmontools)");
	else if (n == -ETIMEDOUT)
		set_text(health, "unknown_because", "smartctl did not answer in time");
	else
		set_text(health, "unknown_because", "smartctl finds no health data on this device");
	json_object_put(smart);
}

/* ---- choice of the source ---- */

static bool link_ends_with(int dir, const char *path, const char *name)
{
	char target[256];
	ssize_t n = readlinkat(dir, path, target, sizeof(target) - 1);
	const char *base;

	if (n < 0)
		return false;
	target[n] = '\0';
	base = strrchr(target, '/');
	return !strcmp(base ? base + 1 : target, name);
}

/* sysfs directory of the whole disk, or -errno */
static int open_disk(const char *device)
{
	const char *sysfs = getenv("COWFS_SYSFS");
	_cleanup_close_ int dir = -1;
	char path[512];
	struct stat st;

	if (stat(device, &st) < 0)
		return -errno;
	if (!S_ISBLK(st.st_mode))
		return -ENOTBLK;
	snprintf(path, sizeof(path), "%s/dev/block/%u:%u", sysfs ? sysfs : "/sys",
		 major(st.st_rdev), minor(st.st_rdev));
	dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return -errno;
	if (faccessat(dir, "partition", F_OK, 0) == 0) {
		int up = openat(dir, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);

		return up < 0 ? -errno : up;
	}
	return steal_fd(&dir);
}

static void name_disk(int dir, char *ret, size_t size_bytes)
{
	char text[1024], *p;

	ret[0] = '\0';
	if (io_read_text(dir, "uevent", text, sizeof(text)) <= 0)
		return;
	p = strstr(text, "DEVNAME=");
	if (!p)
		return;
	p += strlen("DEVNAME=");
	p[strcspn(p, "\n")] = '\0';
	snprintf(ret, size_bytes, "/dev/%s", p);
}

uint64_t health_disk_bytes(const char *device)
{
	_cleanup_close_ int dir = open_disk(device);
	uint64_t sectors;

	return dir >= 0 && io_read_u64(dir, "size", &sectors) == 0 ? sectors * 512 : 0;
}

struct json_object *health_read(const char *device, bool cmd56)
{
	struct json_object *health = empty();
	_cleanup_close_ int dir = open_disk(device);
	char disk[128], text[128];

	if (!health)
		return NULL;
	if (dir < 0) {
		set_text(health, "unknown_because",
			 dir == -ENOTBLK ? "an image file" : "the device is not in sysfs");
		return health;
	}
	name_disk(dir, disk, sizeof(disk));
	set_text(health, "disk", disk);
	set_u64(health, "disk_bytes", health_disk_bytes(device));
	if (io_read_text(dir, "device/name", text, sizeof(text)) > 0 ||
	    io_read_text(dir, "device/model", text, sizeof(text)) > 0)
		set_text(health, "model", text);
	if (link_ends_with(dir, "device/subsystem", "mmc")) {
		bool sd = io_read_text(dir, "device/type", text, sizeof(text)) > 0 &&
			  !strcmp(text, "SD");

		set_text(health, "kind", sd ? "sd" : "emmc");
		if (sd)
			read_sd(health, disk, cmd56);
		else
			read_emmc(health, dir);
	} else if (faccessat(dir, "device", F_OK, 0) == 0 && *disk) {
		read_smart(health, disk);
	} else {
		set_text(health, "unknown_because",
			 "not a physical device (a loop device, for example)");
	}
	return health;
}
