/* SPDX-License-Identifier: MIT */
/*
 * Runs a fuzz target without libFuzzer: main CORPUS MUTATIONS [SEED]. First it runs every file of
 * the corpus, then inputs made from them by simple mutations, which are the same for the same seed.
 * The present input is kept in a file while it runs, so that a crash leaves it behind.
 */
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "base/io.h"
#include "fuzz.h"
#include "rnd.h"

enum { MAX_FILES = 2048, MAX_BYTES = 64 * 1024, MAX_SECONDS = 30 };

static struct file {
	uint8_t *p;
	size_t len;
} files[MAX_FILES];
static size_t n_files;
static char kept_path[4096];
static int kept_fd;

static void die(const char *what)
{
	perror(what);
	exit(2);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static void load(const char *dir)
{
	struct dirent **e;
	int n = scandir(dir, &e, NULL, by_name);

	if (n < 0)
		die(dir);
	for (int i = 0; i < n; i++) {
		char path[4096];
		struct stat st;
		int fd;

		snprintf(path, sizeof(path), "%s/%s", dir, e[i]->d_name);
		free(e[i]);
		if (stat(path, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > MAX_BYTES ||
		    n_files == MAX_FILES)
			continue;
		fd = open(path, O_RDONLY | O_CLOEXEC);
		files[n_files].len = (size_t)st.st_size;
		files[n_files].p = malloc((size_t)st.st_size + 1);
		if (fd < 0 || !files[n_files].p ||
		    io_pread_full(fd, files[n_files].p, files[n_files].len, 0) < 0)
			die(path);
		close(fd);
		n_files++;
	}
	free(e);
}

static void mutate_once(uint8_t *p, size_t *len)
{
	static const uint8_t edge[] = { 0,   1,	  0x7f, 0x80, 0xff, '0', '9',  '"',
					'{', '[', ',',	'=',  ':',  '%', '\n', ' ' };
	const struct file *f = &files[rnd(n_files)];
	size_t at = rnd(*len + 1), n;

	switch (rnd(7)) {
	case 0:
	case 1:
		if (at < *len)
			p[at] ^= (uint8_t)(1 << rnd(8));
		break;
	case 2:
		if (at < *len)
			p[at] = edge[rnd(sizeof(edge))];
		break;
	case 3: /* removes a piece */
		n = rnd(1 + min_u64(*len - at, 64));
		memmove(p + at, p + at + n, *len - at - n);
		*len -= n;
		break;
	case 4: /* repeats a piece */
	case 5: /* takes a piece of another input */
		n = rnd(1 + min_u64(f->len, 64));
		if (*len + n > MAX_BYTES)
			break;
		memmove(p + at + n, p + at, *len - at);
		memcpy(p + at, f->p + rnd(f->len - n + 1), n);
		*len += n;
		break;
	case 6:
		for (n = rnd(9); n && at < *len; n--)
			p[at++] = (uint8_t)rnd(256);
		break;
	}
}

static void run(const uint8_t *p, size_t len)
{
	uint8_t *exact = malloc(len ? len : 1);

	if (!exact || ftruncate(kept_fd, (off_t)len) < 0 || io_pwrite_full(kept_fd, p, len, 0) < 0)
		die(kept_path);
	memcpy(exact, p, len);
	alarm(MAX_SECONDS);
	LLVMFuzzerTestOneInput(exact, len);
	alarm(0);
	free(exact);
}

int main(int argc, char **argv)
{
	static uint8_t buf[MAX_BYTES];
	const char *name = strrchr(argv[0], '/');
	uint64_t mutations, start_ns = now_ns();

	if (argc < 3) {
		fprintf(stderr, "usage: %s CORPUS MUTATIONS [SEED]\n", argv[0]);
		return 2;
	}
	mutations = strtoull(argv[2], NULL, 10);
	rnd_state = argc > 3 ? strtoull(argv[3], NULL, 10) : 1;
	name = name ? name + 1 : argv[0];
	snprintf(kept_path, sizeof(kept_path), "%s.input", argv[0]);
	kept_fd = open(kept_path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (kept_fd < 0)
		die(kept_path);
	load(argv[1]);
	if (!n_files) {
		fprintf(stderr, "%s: nothing in %s\n", name, argv[1]);
		return 2;
	}
	for (size_t i = 0; i < n_files; i++)
		run(files[i].p, files[i].len);
	for (uint64_t i = 0; i < mutations; i++) {
		const struct file *f = &files[rnd(n_files)];
		size_t len = f->len;

		memcpy(buf, f->p, len);
		for (uint64_t k = 1 + rnd(6); k; k--)
			mutate_once(buf, &len);
		run(buf, len);
	}
	close(kept_fd);
	unlink(kept_path);
	printf("  ok    %s (%zu files, %llu mutations, %.1f s)\n", name, n_files,
	       (unsigned long long)mutations, (double)(now_ns() - start_ns) / 1e9);
	for (size_t i = 0; i < n_files; i++)
		free(files[i].p);
	return 0;
}
