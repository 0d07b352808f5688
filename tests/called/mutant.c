/* SPDX-License-Identifier: MIT */
/*
 * Linked into each program of tests/crash/random-mutants.py: which mutant is on, and marks of those that are reached, in a file that is
 * mapped before the daemon gives up its rights.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

unsigned char mutant_marks[MUTANTS] __attribute__((aligned(65536)));
int mutant_on;

__attribute__((constructor(101))) static void begin(void)
{
	const char *on = getenv("COWFS_MUTANT"), *path = getenv("COWFS_MUTANT_MARKS");
	int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;

	mutant_on = on ? atoi(on) : 0;
	if (fd < 0)
		return;
	if (mmap(mutant_marks, sizeof(mutant_marks), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
		 fd, 0) == MAP_FAILED)
		abort();
	close(fd);
}
