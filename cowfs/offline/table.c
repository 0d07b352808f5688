/* SPDX-License-Identifier: MIT */
/*
 * Notes on the design
 * - sfdisk knows the formats: backup header, CRCs, chains of extended partitions. It writes a script that it also
 *   reads, of which only "start" and "size" are changed here, so names, types, UUIDs and attributes stay.
 * - A firmware finds a loader by its sector. What lies in front of the first partition keeps its place, and so do
 *   partitions there without a file system, and GRUB's BIOS boot partition with all in front of it: boot.img in
 *   the MBR has the number of its first sector.
 */
#include "offline/table.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/io.h"
#include "base/numbers.h"
#include "base/parse.h"
#include "base/program.h"

#define TEXT_BYTES (128 * KIB)
#define FRONT_MAX (64 * MIB / TABLE_SECTOR)
#define EBR_ROOM 2048u /* sectors in front of a logical partition */
#define MBR_END UINT32_MAX
#define BLK_SECTORS (COW_BLK_BYTES / TABLE_SECTOR)
#define BOOT_CODE_BYTES 440u
#define BIOS_BOOT "21686148-6449-6E6F-744E-656564454649"

/* ---- sfdisk ---- */

/* script NULL: none. *text: what it says. */
static int sfdisk(const char *const argv[], const char *script, char *text, struct failure *fail)
{
	_cleanup_close_ int in = memfd_create("cowfs-script", MFD_CLOEXEC);
	_cleanup_close_ int out = memfd_create("cowfs-answer", MFD_CLOEXEC);
	ssize_t n;
	int exit;

	if (in < 0 || out < 0)
		return failure_set(fail, EXIT_FAILED, -errno, "no memory for sfdisk");
	if (script && (pwrite(in, script, strlen(script), 0) != (ssize_t)strlen(script)))
		return failure_set(fail, EXIT_FAILED, -EIO, "no memory for sfdisk");
	setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin", 1);
	exit = program_run(argv, in, out);
	n = pread(out, text, TEXT_BYTES - 1, 0);
	text[n > 0 ? n : 0] = '\0';
	if (exit == 0)
		return 0;
	failure_set(fail, EXIT_FAILED, exit == 127 ? -ENOENT : -EIO,
		    exit == 127 ? "sfdisk cannot be run: install the package fdisk"
				: "sfdisk has failed (exit code %d)",
		    exit);
	snprintf(fail->said, sizeof(fail->said), "%.1500s", text);
	return fail->error;
}

/* ---- reading ---- */

/* "start=        2048" at *s, which is moved behind it */
static bool take_number(char **s, const char *key, uint64_t *ret)
{
	char *at = strstr(*s, key), *end;

	if (!at)
		return false;
	at += strlen(key);
	*ret = strtoull(at, &end, 10);
	*s = end;
	return end != at;
}

/* "NODE : start= N, size= N, type=..." */
static int take_part(struct table *t, char *line)
{
	struct table_part *p = &t->p[t->n];
	char *colon = strstr(line, " : start="), *digit = colon, *s = colon;

	if (!colon)
		return 0;
	if (t->n == DISK_PARTS_MAX)
		return -EOVERFLOW;
	while (digit > line && isdigit((unsigned char)digit[-1]))
		digit--;
	*p = (struct table_part){ .number = (unsigned)strtoul(digit, NULL, 10) };
	if (!take_number(&s, " : start=", &p->start) || !take_number(&s, "size=", &p->size) ||
	    !p->number || strlen(s) >= sizeof(p->rest) || p->start > INT64_MAX / TABLE_SECTOR ||
	    p->size > INT64_MAX / TABLE_SECTOR)
		return -EBADMSG;
	snprintf(p->rest, sizeof(p->rest), "%s", s);
	p->need = round_down_u64(p->size, BLK_SECTORS);
	if (!t->gpt) {
		const char *type = strstr(s, "type=");
		unsigned long kind = type ? strtoul(type + strlen("type="), NULL, 16) : 0;

		p->extended = kind == 0x05 || kind == 0x0f || kind == 0x85;
		p->logical = p->number > 4;
	}
	t->n++;
	return 0;
}

static void take_head(struct table *t, const char *line)
{
	static const char *const kept[] = { "label:", "label-id:", "first-lba:", "table-length:" };
	size_t len = strlen(t->head);

	for (size_t i = 0; i < ARRAY_SIZE(kept); i++)
		if (!strncmp(line, kept[i], strlen(kept[i])))
			snprintf(t->head + len, sizeof(t->head) - len, "%s\n", line);
	if (!strcmp(line, "label: gpt"))
		t->gpt = true;
	if (!strncmp(line, "table-length:", 13))
		t->table_sectors = round_up_u64(strtoull(line + 13, NULL, 10) * 128, 512) / 512;
}

static int by_start(const void *a, const void *b)
{
	const struct table_part *x = a, *y = b;

	return x->start < y->start ? -1 : x->start > y->start;
}

int table_read(const char *disk, struct table *ret, struct failure *fail)
{
	const char *const argv[] = { "sfdisk", "--color=never", "--dump", disk, NULL };
	_cleanup_free_ char *text = malloc(TEXT_BYTES);
	char *rest = text;
	int r = text ? sfdisk(argv, NULL, text, fail) : -ENOMEM;

	if (!text || r == -ENOENT)
		return text ? r : failure_set(fail, EXIT_FAILED, r, "out of memory");
	*ret = (struct table){ .table_sectors = 32 };
	for (char *line; r == 0 && (line = strsep(&rest, "\n"));) {
		take_head(ret, line);
		r = take_part(ret, line);
	}
	if (r < 0 || !ret->n || (!ret->gpt && !strstr(ret->head, "label: dos")))
		return failure_set(
			fail, EXIT_FAILED, r < 0 ? r : -EMEDIUMTYPE,
			"%s: its partition table cannot be copied: it must be GPT or MBR, with 1 to "
			"128 partitions",
			disk);
	qsort(ret->p, ret->n, sizeof(ret->p[0]), by_start);
	return 0;
}

/* ---- the plan ---- */

/* Partitions that keep their place: the number of those at the beginning. */
static size_t staying(const struct table *t)
{
	size_t n = 0;

	for (size_t i = 0; i < t->n; i++)
		if (t->gpt && strcasestr(t->p[i].rest, BIOS_BOOT))
			n = i + 1;
	return n;
}

/* Returns the sectors that all of them take. */
static uint64_t place(struct table *t, uint64_t align)
{
	size_t stay = staying(t), parent = t->n;
	uint64_t end = 0;

	for (size_t i = 0; i < t->n; i++) {
		struct table_part *p = &t->p[i];
		uint64_t room = p->logical ? EBR_ROOM : 0;

		p->new_start = i < stay || p->in_front
				       ? p->start
				       : round_up_u64(max_u64(p->start, end + room), align);
		p->new_size = p->size;
		end = p->new_start + (p->extended ? 1 : p->new_size);
		if (p->extended)
			parent = i;
		if (p->logical && parent < t->n)
			t->p[parent].new_size = end - t->p[parent].new_start;
	}
	return t->p[t->last].new_start + t->p[t->last].need;
}

static bool grow_last(struct table *t, uint64_t limit)
{
	struct table_part *p = &t->p[t->last];

	if (limit <= p->new_start)
		return false;
	p->new_size = limit - p->new_start;
	for (size_t i = 0; i < t->n && p->logical; i++)
		if (t->p[i].extended)
			t->p[i].new_size = limit - t->p[i].new_start;
	return true;
}

static int check(const struct table *t, struct failure *fail)
{
	for (size_t i = 0; i < t->n; i++) {
		const struct table_part *p = &t->p[i];

		if (!p->in_front && !p->extended && p->new_start % BLK_SECTORS)
			return failure_set(
				fail, EXIT_FAILED, -EINVAL,
				"partition %u must keep its place, and starts within a block of 4 KiB",
				p->number);
	}
	return 0;
}

int table_plan(struct table *t, const char *target, uint64_t bytes, uint32_t erase_block_bytes,
	       struct failure *fail)
{
	uint64_t total = bytes / TABLE_SECTOR, limit, end;
	uint64_t behind = t->gpt ? t->table_sectors + 1 : 0;

	limit = total > behind ? total - behind : 0;
	limit = round_down_u64(t->gpt ? limit : min_u64(limit, MBR_END), BLK_SECTORS);
	t->front = FRONT_MAX;
	t->last = t->n - 1;
	for (size_t i = 0; i < t->n; i++) {
		struct table_part *p = &t->p[i];

		p->in_front = p->firmware && p->start + p->size <= FRONT_MAX &&
			      (i == 0 || t->p[i - 1].in_front);
		if (!p->in_front)
			t->front = min_u64(t->front, p->start);
	}
	end = place(t, max_u64(erase_block_bytes / TABLE_SECTOR, BLK_SECTORS));
	if (end > limit)
		end = place(t, BLK_SECTORS);
	if (end > limit || !grow_last(t, limit))
		return failure_set(
			fail, EXIT_FAILED, -ENOSPC,
			"%s: too small (%s): %s are missing for the partitions in front of the last "
			"one, and for that",
			target, FORMAT_SIZE(bytes),
			FORMAT_SIZE((end - min_u64(end, limit)) * TABLE_SECTOR));
	return check(t, fail);
}

/* ---- the image ---- */

/* Without the old table. */
static void blank_table(const struct table *t, uint64_t off_bytes, char *blk)
{
	uint64_t end_bytes = t->gpt ? (2 + t->table_sectors) * TABLE_SECTOR : TABLE_SECTOR;
	uint64_t from = off_bytes ? 0 : BOOT_CODE_BYTES;

	if (end_bytes > off_bytes + from)
		memset(blk + from, 0, min_u64(COW_BLK_BYTES, end_bytes - off_bytes) - from);
}

/* A GPT that sfdisk would not make again; NULL: it is none. blk: the first one of the disk. */
static const char *oddity(const struct table *t, const char *blk)
{
	static const uint8_t second[8] = { 2 };

	if (!t->gpt)
		return NULL;
	for (unsigned i = 0; i < 4; i++) {
		uint8_t type = (uint8_t)blk[446 + 16 * i + 4];

		if (type && type != 0xee)
			return "its MBR has partitions of its own (a hybrid MBR)";
	}
	return memcmp(blk + TABLE_SECTOR + 72, second, sizeof(second))
		       ? "the entries of its GPT do not begin at sector 2, or its primary header is damaged"
		       : NULL;
}

static int copy_front(const struct table *t, struct card *from, int fd, const char **ret_odd)
{
	uint64_t end = t->front * TABLE_SECTOR;
	_cleanup_free_ char *blk = io_alloc(COW_BLK_BYTES);
	int r = blk ? card_read(from, 0, blk, COW_BLK_BYTES) : -ENOMEM;

	*ret_odd = r == 0 ? oddity(t, blk) : NULL;
	for (uint64_t off = 0; off < end && r == 0; off += COW_BLK_BYTES) {
		r = card_read(from, off, blk, COW_BLK_BYTES);
		blank_table(t, off, blk);
		if (r == 0 && (*blk || memcmp(blk, blk + 1, COW_BLK_BYTES - 1)))
			r = io_pwrite_full(fd, blk, min_u64(COW_BLK_BYTES, end - off), off);
	}
	return r;
}

static void write_script(const struct table *t, char *ret)
{
	size_t len = (size_t)snprintf(ret, TEXT_BYTES, "%s\n", t->head);

	for (size_t i = 0; i < t->n; i++)
		len += (size_t)snprintf(ret + len, TEXT_BYTES - len,
					"/dev/p%u : start=%llu, size=%llu%s\n", t->p[i].number,
					(unsigned long long)t->p[i].new_start,
					(unsigned long long)t->p[i].new_size, t->p[i].rest);
}

int table_image(const struct table *t, struct card *from, uint64_t bytes, int *ret_fd,
		uint32_t *ret_crc, struct failure *fail)
{
	_cleanup_close_ int fd = memfd_create("cowfs-table", 0); /* sfdisk inherits it */
	_cleanup_free_ char *text = malloc(TEXT_BYTES), *script = malloc(TEXT_BYTES);
	char path[32], code[BOOT_CODE_BYTES];
	const char *odd = NULL;
	const char *const argv[] = { "sfdisk",
				     "--quiet",
				     "--color=never",
				     "--no-reread",
				     "--no-tell-kernel",
				     "--wipe=never",
				     "--wipe-partitions=never",
				     path,
				     NULL };
	int r = fd < 0 || !text || !script || ftruncate(fd, (off_t)bytes) < 0 ? -ENOMEM : 0;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (r == 0)
		r = copy_front(t, from, fd, &odd);
	if (odd)
		return failure_set(fail, EXIT_FAILED, -EOPNOTSUPP,
				   "%s: its partition table cannot be copied: %s", from->geo.path,
				   odd);
	if (r == 0)
		r = io_pread_full(fd, code, sizeof(code), 0);
	if (r < 0)
		return failure_set(fail, EXIT_FAILED, r,
				   "%s: what lies in front of its partitions cannot be read: %s",
				   from->geo.path, strerrordesc_np(-r));
	write_script(t, script);
	r = sfdisk(argv, script, text, fail);
	if (r < 0)
		return r;
	r = io_pwrite_full(fd, code, sizeof(code), 0);
	if (r < 0)
		return failure_set(fail, EXIT_FAILED, r, "no memory for the partition table");
	*ret_crc = crc32c(0, script, strlen(script));
	*ret_fd = steal_fd(&fd);
	return 0;
}
