/* SPDX-License-Identifier: MIT */
/*
 * LD_PRELOAD: code of an attacker in the worker of a volume, who says something else. COWFS_LIE has KEY=VALUE: wherever the
 * process that is not root writes "KEY":"...", in an answer, in the status file or in the line of its start, VALUE is written.
 * KEY=VALUE where VALUE begins with '{', '[', or a digit: it is written without quotes.
 * COWFS_LIE=random: each final answer, the status file and the line of the start become random ones, of the number that the file
 * COWFS_LIE_FILE has (it is mapped: write it in place). 0: they are honest.
 * COWFS_LIE=progress: no answer comes, but progress for ever. COWFS_LIE=mute: nothing comes.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/broker.h"

#define ROOM 70000
#define REAL(name) (real ? real : (real = (__typeof__(real))dlsym(RTLD_NEXT, #name)))

static const char *lie, *value, *number;
static char key[64];

__attribute__((constructor)) static void begin(void)
{
	const char *file = getenv("COWFS_LIE_FILE");
	int fd = file ? open(file, O_RDONLY | O_CLOEXEC) : -1;
	void *at = fd < 0 ? MAP_FAILED : mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);

	if (fd >= 0)
		close(fd);
	number = at == MAP_FAILED ? "0" : at;
	lie = getenv("COWFS_LIE");
	value = lie ? strchr(lie, '=') : NULL;
	if (value)
		snprintf(key, sizeof(key), "\"%.*s\":", (int)(value++ - lie), lie);
}

static const char *end_of(const char *p, const char *end)
{
	if (p < end && *p == '"')
		for (p++; p < end && *p != '"'; p++)
			p += *p == '\\';
	else
		while (p < end && *p != ',' && *p != '}')
			p++;
	return p < end && *p == '"' ? p + 1 : p;
}

static size_t random_answer(char *to)
{
	static const char *const pieces[] = {
		"{",
		"}",
		"[",
		"]",
		",",
		":",
		"\"",
		"{\"ok\":true",
		"\"ok\":false,\"exit\":",
		"\"error\":",
		"\"report\":",
		"\"erase_blocks\":",
		"\"written_blocks\":",
		"\"visits\":",
		"\"history\":",
		"\"commits\":",
		"\"days\":",
		"\"views\":",
		"\"list\":",
		"\"runs\":",
		"\"next\":",
		"\"stamp\":",
		"\"device\":",
		"\"loop\":",
		"\"mountpoint\":",
		"\"name\":",
		"\"fs_type\":",
		"\"pressure\":",
		"\"totals\":",
		"\"held\":",
		"null",
		"true",
		"-1",
		"18446744073709551615",
		"1e400",
		"0.5",
		"\"/etc/passwd\"",
		"\"\\u0000\"",
		"\"\\ud800\"",
		"[[[[[[[[[[",
		"{\"a\":{\"a\":{\"a\":{",
		"\"ext4\"",
		"\x01",
		"\xff\xfe",
		"\033]0;x\007",
		"\"%n%s%s\"",
		"7",
		"[1,2",
		"[{\"x\":1}]",
	};
	static const char *const heads[] = { "{\"ok\":true,", "{\"ok\":false,\"exit\":", "{", "",
					     "{\"ok\":" };
	static unsigned answers;
	static int last;
	unsigned seed;
	size_t len;

	if (last != atoi(number))
		answers = 0;
	last = atoi(number);
	seed = (unsigned)last * 1000 + answers++;
	len = (size_t)sprintf(to, "%s", heads[rand_r(&seed) % 8 < 5 ? 0 : 1 + rand_r(&seed) % 4]);
	for (int n = rand_r(&seed) % 40; n > 0; n--)
		len += (size_t)sprintf(to + len, "%s",
				       pieces[rand_r(&seed) % (sizeof(pieces) / sizeof(*pieces))]);
	if (rand_r(&seed) % 2)
		len += (size_t)sprintf(to + len, "}");
	to[len++] = '\n';
	return len;
}

/* The length of what is said instead of text, 0: nothing is. */
static size_t tell(const char *text, size_t len, char *to)
{
	const char *end = text + len, *at, *rest;
	size_t n = 0;

	if (!lie || !geteuid() || len > ROOM / 2 || len < 6 || !memmem(text, len, "{\"", 2))
		return 0;
	if (!strcmp(lie, "random"))
		return !memcmp(text, "{\"ok\"", 5) && atoi(number) ? random_answer(to) : 0;
	if (!strcmp(lie, "progress"))
		return memcmp(text, "{\"ok\"", 5)
			       ? 0
			       : (size_t)sprintf(to,
						 "{\"event\":\"progress\",\"phase\":\"log\"}\n");
	while (value && (at = memmem(text, (size_t)(end - text), key, strlen(key)))) {
		at += strlen(key);
		memcpy(to + n, text, (size_t)(at - text));
		n += (size_t)(at - text);
		n += (size_t)sprintf(to + n, strchr("{[0123456789", *value) ? "%s" : "\"%s\"",
				     value);
		rest = end_of(at, end);
		text = rest;
	}
	if (!n)
		return 0;
	memcpy(to + n, text, (size_t)(end - text));
	return n + (size_t)(end - text);
}

/* The status file: what is said instead of the message; NULL: nothing is. */
static const struct broker_message *publish(const struct broker_message *b, size_t n)
{
	static char to[ROOM];
	static struct broker_message say;
	size_t len;

	if (n < offsetof(struct broker_message, data) + 6 || b->op != BROKER_PUBLISH || b->n[0])
		return NULL;
	len = tell(b->data, b->bytes, to);
	if (!len || len > sizeof(say.data))
		return NULL;
	memcpy(&say, b, offsetof(struct broker_message, data));
	memcpy(say.data, to, len);
	say.bytes = (uint32_t)len;
	return &say;
}

static bool is_lane(int fd)
{
	socklen_t len = sizeof(int);
	int type = 0;

	return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0 && type == SOCK_SEQPACKET;
}

ssize_t send(int fd, const void *b, size_t n, int flags)
{
	static ssize_t (*real)(int, const void *, size_t, int);
	static char to[ROOM];
	const struct broker_message *say;
	size_t len;

	REAL(send);
	if (!lie || !geteuid())
		return real(fd, b, n, flags);
	if (is_lane(fd)) {
		say = publish(b, n);
		if (!say)
			return real(fd, b, n, flags);
		return real(fd, say, offsetof(struct broker_message, data) + say->bytes, flags) < 0
			       ? -1
			       : (ssize_t)n;
	}
	if (*(const char *)b != '{') /* of a process that reads metadata */
		return real(fd, b, n, flags);
	len = tell(b, n, to);
	if (!strcmp(lie, "mute"))
		return (ssize_t)n;
	/* until the client has enough of it */
	while (len && !strcmp(lie, "progress") && real(fd, to, len, flags) > 0)
		usleep(500000);
	return len ? (real(fd, to, len, flags) < 0 ? -1 : (ssize_t)n) : real(fd, b, n, flags);
}

ssize_t write(int fd, const void *b, size_t n)
{
	static ssize_t (*real)(int, const void *, size_t);
	static char to[ROOM];
	size_t len = tell(b, n, to);

	REAL(write);
	return len ? (real(fd, to, len) < 0 ? -1 : (ssize_t)n) : real(fd, b, n);
}
