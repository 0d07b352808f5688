/* SPDX-License-Identifier: MIT */
#include "export/uring.h"

#include <errno.h>
#include <stdio.h>

#ifndef COWFS_URING

int uring_check(char *why, size_t n)
{
	snprintf(why, n, "this build has no io_uring");
	return -ENOTSUP;
}

#else

#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

/* older kernel headers have none */
#ifndef IORING_SETUP_NO_MMAP
#define IORING_SETUP_NO_MMAP (1u << 14)
#endif

#define REGION_BYTES (8 * KIB) /* more than either region needs */
#define MEM_BYTES (2 * REGION_BYTES)

int uring_new(struct uring *u, unsigned entries, unsigned flags)
{
	struct io_uring_params p = { .flags = flags | IORING_SETUP_NO_MMAP |
					      IORING_SETUP_R_DISABLED };
	unsigned *array;
	char *rings;
	long fd;

	*u = (struct uring){ .fd = -1 };
	u->mem = mmap(NULL, MEM_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (u->mem == MAP_FAILED)
		return -errno;
	rings = u->mem;
	u->sqes = rings + REGION_BYTES;
	/* user_addr, which old headers do not name */
	memcpy((char *)&p.cq_off + sizeof(p.cq_off) - 8, &(uint64_t){ (uintptr_t)rings }, 8);
	memcpy((char *)&p.sq_off + sizeof(p.sq_off) - 8, &(uint64_t){ (uintptr_t)u->sqes }, 8);
	fd = syscall(SYS_io_uring_setup, entries, &p);
	if (fd < 0) {
		int e = -errno;

		munmap(u->mem, MEM_BYTES);
		return e;
	}
	u->fd = (int)fd;
	u->entries = p.sq_entries;
	u->sq_mask = p.sq_entries - 1;
	u->cq_mask = p.cq_entries - 1;
	u->sqe_bytes = flags & IORING_SETUP_SQE128 ? 128 : 64;
	u->sq_tail = (_Atomic unsigned *)(rings + p.sq_off.tail);
	u->cq_head = (_Atomic unsigned *)(rings + p.cq_off.head);
	u->cq_tail = (_Atomic unsigned *)(rings + p.cq_off.tail);
	u->cqes = (struct io_uring_cqe *)(rings + p.cq_off.cqes);
	array = (unsigned *)(rings + p.sq_off.array);
	for (unsigned i = 0; i < u->entries; i++)
		array[i] = i;
	return 0;
}

int uring_register_file(struct uring *u, int fd)
{
	return syscall(SYS_io_uring_register, u->fd, IORING_REGISTER_FILES, &fd, 1) < 0 ? -errno
											: 0;
}

int uring_register_memory(struct uring *u, struct iovec memory)
{
	return syscall(SYS_io_uring_register, u->fd, IORING_REGISTER_BUFFERS, &memory, 1) < 0
		       ? -errno
		       : 0;
}

int uring_restrict(struct uring *u, const uint8_t ops[], unsigned n)
{
	struct io_uring_restriction only[8] = {
		{ .opcode = IORING_RESTRICTION_SQE_FLAGS_ALLOWED, .sqe_flags = IOSQE_FIXED_FILE },
	};

	if (n >= ARRAY_SIZE(only))
		return -EINVAL;
	for (unsigned i = 0; i < n; i++) {
		only[i + 1].opcode = IORING_RESTRICTION_SQE_OP;
		only[i + 1].sqe_op = ops[i];
	}
	if (syscall(SYS_io_uring_register, u->fd, IORING_REGISTER_RESTRICTIONS, only, n + 1) < 0 ||
	    syscall(SYS_io_uring_register, u->fd, IORING_REGISTER_ENABLE_RINGS, NULL, 0) < 0)
		return -errno;
	return 0;
}

void uring_free(struct uring *u)
{
	close(u->fd);
	munmap(u->mem, MEM_BYTES);
}

struct io_uring_sqe *uring_sqe(struct uring *u)
{
	char *sqe = u->sqes + (size_t)(u->tail & u->sq_mask) * u->sqe_bytes;

	if (u->tail - u->submitted == u->entries)
		return NULL;
	u->tail++;
	memset(sqe, 0, sizeof(struct io_uring_sqe)); /* of a fixed size: without a call */
	if (u->sqe_bytes > sizeof(struct io_uring_sqe))
		memset(sqe + sizeof(struct io_uring_sqe), 0,
		       u->sqe_bytes - sizeof(struct io_uring_sqe));
	return (struct io_uring_sqe *)sqe;
}

int uring_submit(struct uring *u, unsigned wait)
{
	long n;

	atomic_store_explicit(u->sq_tail, u->tail, memory_order_release);
	n = syscall(SYS_io_uring_enter, u->fd, u->tail - u->submitted, wait,
		    wait ? IORING_ENTER_GETEVENTS : 0, NULL, 0);
	if (n < 0)
		return -errno;
	u->submitted += (unsigned)n;
	return 0;
}

bool uring_take(struct uring *u, uint64_t *ret_user_data, int *ret_res)
{
	unsigned head = atomic_load_explicit(u->cq_head, memory_order_relaxed);
	const struct io_uring_cqe *cqe = &u->cqes[head & u->cq_mask];

	if (head == atomic_load_explicit(u->cq_tail, memory_order_acquire))
		return false;
	*ret_user_data = cqe->user_data;
	*ret_res = cqe->res;
	atomic_store_explicit(u->cq_head, head + 1, memory_order_release);
	return true;
}

int uring_check(char *why, size_t n)
{
	struct uring u;
	int r = uring_new(&u, 2, IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN);

	if (r == 0)
		uring_free(&u);
	else if (r == -ENOSYS)
		snprintf(why, n, "the kernel has no io_uring");
	else if (r == -EPERM)
		snprintf(why, n,
			 "io_uring is not allowed (kernel.io_uring_disabled, or a filter "
			 "of system calls)");
	else if (r == -EINVAL)
		snprintf(why, n, "the io_uring of this kernel is too old");
	else
		snprintf(why, n, "no io_uring: %s", strerrordesc_np(-r));
	return r;
}

#endif
