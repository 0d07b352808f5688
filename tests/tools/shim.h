/* SPDX-License-Identifier: MIT */
/* What the LD_PRELOAD libraries that play a card have in common. */
#ifndef COWFS_TESTS_SHIM_H
#define COWFS_TESTS_SHIM_H

#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* The function that this library replaces. A shim that cannot do its work must not look like a card
 * without errors. */
static void *real(const char *name)
{
	void *f = dlsym(RTLD_NEXT, name);

	if (!f)
		abort();
	return f;
}

/* The file that the variable names, made if need be; NULL without the variable. */
static inline void *control_map(const char *variable, size_t len_bytes)
{
	const char *path = getenv(variable);
	int fd = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
	void *p;

	if (!path)
		return NULL;
	if (fd < 0 || ftruncate(fd, (off_t)len_bytes) < 0)
		abort();
	p = mmap(NULL, len_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		abort();
	close(fd);
	return p;
}

#endif
