/* SPDX-License-Identifier: MIT */
/* Runs fio(1), which makes all requests of `cowctl measure --tables`, and reads its result. */
#ifndef COWFS_MEASURE_BENCH_FIO_H
#define COWFS_MEASURE_BENCH_FIO_H

#include "base/util.h"
#include "wire/failure.h"

/* One job: requests of one size, one after the other. */
struct fio_job {
	int fd;			/* of the device or file; fio opens it once more */
	const char *rw;		/* read, write, randread, randwrite, randrw */
	unsigned write_percent; /* randrw */
	/* offsets of requests are off_bytes plus multiples of request_bytes */
	uint64_t off_bytes, len_bytes, request_bytes;
	uint64_t total_bytes; /* it ends after these, or after limit_ms */
	uint64_t limit_ms;
	bool direct, sync;
	bool each_once; /* randwrite: each request of the range once, in a random order */
	uint64_t seed;
};

/* The requests of one kind. */
struct fio_side {
	uint64_t requests, bytes;
	double seconds; /* from the first to the end of the last */
	double mean_ns, deviation_ns;
	uint64_t median_ns, p99_ns, longest_ns;
};

struct fio_result {
	struct fio_side read, write;
};

/* Gets the version, "fio-3.33". -ENOENT: fio is not installed; f says so. */
int fio_find(char *version, size_t size_bytes, struct failure *f) MUST_CHECK;
/*
 * Runs the job. Its writes are flushed at its end. -EINTR: a signal arrived (fio_signals) and fio
 * was killed. -ETIME: it did not end within a minute after its limit, and was killed. Errors of the
 * device, as fio reports them.
 */
int fio_run(const struct fio_job *job, struct fio_result *ret, struct failure *f) MUST_CHECK;
/* From now on SIGINT, SIGTERM and SIGHUP end fio_run with -EINTR, and nothing else. */
void fio_signals(void);
/* The signal that arrived; 0: none. */
int fio_signal(void);
/* Ends the program by that signal. */
void fio_pass_signal(void);

/*
 * Reads the JSON of a job's result; text before it is skipped. Pure. -EBADMSG: it is not what fio
 * prints. Otherwise the error of the job, 0 or negative.
 */
int fio_parse(const char *text, struct fio_result *ret) MUST_CHECK;

#endif
