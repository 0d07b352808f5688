/* SPDX-License-Identifier: MIT */
/* All that ssh-keygen gets is in files of memory, so nobody can change it meanwhile. */
#include "cli/delta_sign.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/io.h"
#include "base/path.h"
#include "base/program.h"

#define WHO "cowfs"
#define NAMESPACE "cowfs"
#define KEYS_BYTES (64 * KIB)

struct memory {
	int fd;
	char path[32];
};

/* For a program that this one starts. len 0: empty. */
static int memory_new(struct memory *m, const void *data, size_t len)
{
	int r = 0;

	m->fd = memfd_create("cowfs", 0);
	if (m->fd < 0)
		return -errno;
	snprintf(m->path, sizeof(m->path), "/proc/self/fd/%d", m->fd);
	if (len)
		r = io_pwrite_full(m->fd, data, len, 0);
	return r;
}

static void read_output(const struct memory *m, char *text, size_t n)
{
	ssize_t len = pread(m->fd, text, n - 1, 0);

	text[len > 0 ? len : 0] = '\0';
}

int delta_sign(const uint8_t head[DELTA_HEAD_BYTES], const char *key,
	       char ret[DELTA_SIGNATURE_BYTES], struct failure *fail)
{
	static const char begin[] = "-----BEGIN SSH SIGNATURE-----",
			  end[] = "-----END SSH SIGNATURE-----\n";
	const char *argv[] = { "ssh-keygen", "-Y", "sign", "-n", NAMESPACE, "-f", key, NULL };
	struct memory in = { .fd = -1 }, out = { .fd = -1 };
	char text[2 * DELTA_SIGNATURE_BYTES] = "", *from, *to;
	int r = memory_new(&in, head, DELTA_HEAD_BYTES), exit = 0;

	if (r == 0)
		r = memory_new(&out, NULL, 0);
	if (r == 0 && lseek(in.fd, 0, SEEK_SET) == 0) {
		exit = program_run(argv, in.fd, out.fd);
		read_output(&out, text, sizeof(text));
	}
	cleanup_closep(&in.fd);
	cleanup_closep(&out.fd);
	if (r < 0)
		return failure(fail, r, "not signed: %s", strerrordesc_np(-r));
	from = strstr(text, begin);
	to = from ? strstr(from, end) : NULL;
	if (exit || !to || to + sizeof(end) - from > (ssize_t)DELTA_SIGNATURE_BYTES)
		return failure(fail, -EKEYREJECTED, "not signed: ssh-keygen -Y sign -f %s: %.300s",
			       key, text);
	memset(ret, 0, DELTA_SIGNATURE_BYTES);
	memcpy(ret, from, (size_t)(to - from) + sizeof(end) - 1);
	return 0;
}

/* ---- verification ---- */

static int read_keys(const char *path, char *text)
{
	int path_fd = path_open_owned(path);
	int fd = path_fd < 0 ? path_fd : path_reopen(path_fd, O_RDONLY);
	ssize_t n = fd < 0 ? fd : pread(fd, text, KEYS_BYTES, 0);

	if (fd >= 0 && n < 0)
		n = -errno;
	cleanup_closep(&fd);
	cleanup_closep(&path_fd);
	if (n == KEYS_BYTES)
		return -EFBIG;
	if (n >= 0)
		text[n] = '\0';
	return n < 0 ? (int)n : 0;
}

/* The same, as ssh-keygen wants them: one name for all. */
static int allow_keys(struct memory *m, const char *text)
{
	_cleanup_free_ char *lines = NULL;
	size_t bytes;
	FILE *f = open_memstream(&lines, &bytes);
	int r;

	if (!f)
		return -ENOMEM;
	while (*text) {
		size_t n = strcspn(text, "\n");

		if (n && *text != '#')
			fprintf(f, WHO " namespaces=\"" NAMESPACE "\" %.*s\n", (int)n, text);
		text += n + (text[n] == '\n');
	}
	r = fclose(f) == 0 ? 0 : -ENOMEM;
	return r == 0 ? memory_new(m, lines, bytes) : r;
}

static int verify(const uint8_t *head, const char *signature, const char *keys,
		  struct memory memory[4])
{
	const char *argv[] = { "ssh-keygen", "-Y", "verify", "-n", NAMESPACE, "-I",
			       WHO,	     "-f", NULL,     "-s", NULL,      NULL };
	_cleanup_free_ char *text = malloc(KEYS_BYTES + 1);
	int r = text ? read_keys(keys, text) : -ENOMEM;

	if (r == 0)
		r = allow_keys(&memory[0], text);
	if (r == 0)
		r = memory_new(&memory[1], signature, strnlen(signature, DELTA_SIGNATURE_BYTES));
	if (r == 0)
		r = memory_new(&memory[2], head, DELTA_HEAD_BYTES);
	if (r == 0)
		r = memory_new(&memory[3], NULL, 0);
	if (r < 0 || lseek(memory[2].fd, 0, SEEK_SET) != 0)
		return r < 0 ? r : -errno;
	argv[8] = memory[0].path;
	argv[10] = memory[1].path;
	/* not another one, which says yes to all */
	setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin", 1);
	return program_run(argv, memory[2].fd, memory[3].fd);
}

int delta_verify(const uint8_t head[DELTA_HEAD_BYTES], const char signature[DELTA_SIGNATURE_BYTES],
		 const char *keys, const char *name, struct failure *fail)
{
	struct memory memory[4] = { { .fd = -1 }, { .fd = -1 }, { .fd = -1 }, { .fd = -1 } };
	char text[300] = "", why[2 * PATH_MAX];
	int r;

	if (!*signature)
		return failure(fail, -EKEYREJECTED,
			       "%s: is not signed, and import-keys of cowfs.conf asks for that",
			       name);
	r = verify(head, signature, keys, memory);
	if (r > 0)
		read_output(&memory[3], text, sizeof(text));
	for (size_t i = 0; i < ARRAY_SIZE(memory); i++)
		cleanup_closep(&memory[i].fd);
	if (r < 0)
		return failure(fail, r, "import-keys: %s: %s", keys,
			       r == -EPERM ? "other users can change it"
					   : path_strerror(keys, r, why, sizeof(why)));
	if (r)
		return failure(fail, -EKEYREJECTED, "%s: its signature is of no key of %s: %s",
			       name, keys, text);
	return 0;
}
