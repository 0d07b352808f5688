/* SPDX-License-Identifier: MIT */
/* A file of profiles, or a trace: any bytes. An accepted profile makes a model that keeps its
 * account. */
#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>

#include "base/io.h"
#include "sim/model.h"
#include "fuzz.h"
#include "trace_read.h"

static const char *as_file(int fd, const uint8_t *data, size_t len, char path[32])
{
	if (fd < 0 || ftruncate(fd, 0) < 0 || io_pwrite_full(fd, data, len, 0) < 0)
		abort();
	snprintf(path, 32, "/proc/self/fd/%d", fd);
	return path;
}

static void use(const struct flash_profile *p)
{
	struct flash_model *m;
	struct flash_stats st;
	uint64_t size = 16 * MIB, ns = 0;
	int r = flash_model_new(&m, p, size, 0);

	FUZZ_PROMISE(r == 0 || r == -EINVAL);
	if (r < 0)
		return;
	size = flash_model_size_bytes(m);
	for (uint64_t i = 0; i < 64; i++) {
		uint64_t off = i * 7919 * 4096 % size, len = 4096 << i % 10;

		ns += i % 5 ? flash_model_write(m, off, len, i % 4) : flash_model_read(m, off, len);
		if (i % 17 == 0)
			ns += flash_model_flush(m);
	}
	ns += flash_model_settle(m);
	flash_model_stats(m, &st);
	FUZZ_PROMISE(st.clock_ns == ns && st.programmed_bytes >= st.copied_bytes);
	flash_model_free(m);
}

/* Not from a file: root would refuse one behind a link. */
static void profiles(const uint8_t *data, size_t len)
{
	_cleanup_free_ char *text = fuzz_text(data, len);
	struct flash_profiles *ps;
	char why[200] = "";
	int r = flash_profiles_parse(&ps, text, len, why, sizeof(why));

	FUZZ_PROMISE(r == 0 || (r < 0 && *why));
	if (r < 0)
		return;
	/* the program's own come first; other tests cover them */
	for (size_t i = flash_profiles_first_own(ps), n = 0; i < flash_profiles_count(ps) && n < 12;
	     i++, n++)
		use(flash_profiles_at(ps, i));
	flash_profiles_close(ps);
}

static void trace(const char *path)
{
	struct flash_trace_record rec;
	struct flash_trace *t;
	char why[200] = "";
	uint64_t n = 0, last = 0;
	int r = flash_trace_open(&t, path, why, sizeof(why));

	FUZZ_PROMISE(r == 0 || (r == -EBADMSG && *why));
	if (r < 0)
		return;
	while ((r = flash_trace_next(t, &rec)) == 1) {
		FUZZ_PROMISE(rec.time_ns >= last &&
			     rec.off_bytes + rec.len_bytes <= flash_trace_volume_bytes(t));
		last = rec.time_ns;
		n++;
	}
	FUZZ_PROMISE(r == -EBADMSG || (r == 0 && n == flash_trace_records(t)));
	flash_trace_close(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	static int fd = -1;
	char path[32];

	if (fd < 0)
		fd = memfd_create("fuzz", MFD_CLOEXEC);
	trace(as_file(fd, data, len, path));
	if (len && data[0] == '{')
		profiles(data, len);
	return 0;
}
