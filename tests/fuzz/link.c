/* SPDX-License-Identifier: MIT */
/*
 * The parent process and a worker that sends what it likes: any bytes with any descriptors, many
 * messages before the parent looks. The parent answers each message of the right length, never waits, takes and gives no descriptor, and
 * in the end none is left.
 *
 * Input: steps. A step: what u8 (low three bits: see enum step), then what it takes.
 */
#include "daemon/supervisor.c"

#include <sys/eventfd.h>

#include "fuzz.h"

enum step { MESSAGE, BYTES, FLOOD, LOOK, READ, STEPS };
enum { MAX_STEPS = 128 };

static struct parent parent;
static int worker_fd;

static void must(bool ok)
{
	if (!ok)
		abort();
}

static void begin(void)
{
	static struct signs signs;
	int own[2], root[2];

	parent = (struct parent){ .opts = { .kmsg_fd = -1, .proc_dirfd = -1 },
				  .worker_pidfd = -1,
				  .worker_status_fd = -1,
				  .kernel_fd = -1,
				  .null_fd = -1,
				  .signs = &signs };
	for (unsigned i = 0; i < SUPERVISOR_KEPT_MAX; i++)
		parent.kept[i] = -1;
	must(spare_link(own, root) == 0);
	parent.sock_fd = own[0];
	worker_fd = own[1];
	parent.root_fd = root[0];
	parent.spare_fd = root[1];
}

static void end(void)
{
	int fds[] = { parent.sock_fd, worker_fd, parent.root_fd, parent.spare_fd };

	for (unsigned i = 0; i < ARRAY_SIZE(fds); i++)
		if (fds[i] >= 0)
			close(fds[i]);
	link_close(parent.kept);
}

/* ---- steps ---- */

static bool send_any(struct fuzz_input *in, const void *p, size_t len)
{
	unsigned n = (unsigned)fuzz_uint(in, 1) % (PASSFD_MAX + 1),
		 kind = (unsigned)fuzz_uint(in, 1);
	int fd[PASSFD_MAX] = { -1 }, r;

	for (unsigned i = 0; i < n; i++) {
		fd[i] = (kind + i) % 3 == 0   ? eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)
			: (kind + i) % 3 == 1 ? dup(worker_fd)
					      : memfd_create("passed", MFD_CLOEXEC);
		must(fd[i] >= 0);
	}
	r = passfd_send(worker_fd, p, len, fd, n, MSG_DONTWAIT);
	if (r == -EPERM) /* Linux 6.16 */
		r = passfd_send(worker_fd, p, len, NULL, 0, MSG_DONTWAIT);
	for (unsigned i = 0; i < n; i++)
		close(fd[i]);
	return r == 0;
}

static struct message some_message(struct fuzz_input *in)
{
	struct message m;
	unsigned char raw[sizeof(m)];

	for (size_t i = 0; i < sizeof(raw); i++)
		raw[i] = 0;
	memcpy(&m, raw, sizeof(m));
	m.what = (uint32_t)fuzz_uint(in, 1) % (LINK_HELLO + 2);
	m.pid = (int)(int8_t)fuzz_uint(in, 1);
	m.slots = (uint32_t)fuzz_uint(in, 4);
	m.number = (uint32_t)fuzz_uint(in, 1);
	return m;
}

static bool readable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return fd >= 0 && poll(&p, 1, 0) > 0;
}

static void empty(void)
{
	struct message m;
	int fd[SUPERVISOR_KEPT_MAX];

	while (readable(worker_fd) && link_receive(worker_fd, &m, fd) == 1)
		link_close(fd);
}

/* One message of the right form, and its answer. */
static void ask(struct fuzz_input *in)
{
	struct message m = some_message(in), answer;
	int fd[SUPERVISOR_KEPT_MAX];
	bool answered = false;

	while (readable(parent.sock_fd))
		FUZZ_PROMISE(serve_link(&parent));
	empty();
	if (!send_any(in, &m, sizeof(m)))
		return;
	FUZZ_PROMISE(serve_link(&parent));
	while (readable(worker_fd) && link_receive(worker_fd, &answer, fd) == 1) {
		answered |= answer.what == m.what && answer.number == m.number;
		for (unsigned i = 0; i < SUPERVISOR_KEPT_MAX; i++)
			FUZZ_PROMISE(fd[i] < 0 && parent.kept[i] < 0);
		link_close(fd);
	}
	FUZZ_PROMISE(answered);
}

static void take_step(struct fuzz_input *in)
{
	unsigned what = (unsigned)fuzz_uint(in, 1);
	uint8_t some[256];
	size_t n;

	switch ((enum step)((what & 7) % STEPS)) {
	case MESSAGE:
		ask(in);
		break;
	case BYTES: /* a message without any is the end of the worker */
		n = fuzz_uint(in, 1);
		n = min_u64(n, in->left);
		some[0] = (uint8_t)what;
		memcpy(some + 1, in->p, n);
		in->p += n;
		in->left -= n;
		(void)!send_any(in, some, n + 1);
		break;
	case FLOOD:
		for (struct message m = some_message(in); what; what--)
			(void)!send_any(in, &m, sizeof(m));
		break;
	case LOOK:
		if (readable(parent.sock_fd))
			(void)serve_link(&parent);
		break;
	case READ:
		empty();
		break;
	case STEPS:
	default:
		break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct fuzz_input in = { data, len };
	static unsigned before;

	if (!before) {
		msg_to_kmsg(open("/dev/null", O_WRONLY | O_CLOEXEC));
		begin();
		end();
		before = fuzz_fds();
	}
	begin();
	for (unsigned n = 0; in.left && n < MAX_STEPS; n++)
		take_step(&in);
	while (readable(parent.sock_fd))
		if (!serve_link(&parent))
			break;
	end();
	FUZZ_PROMISE(fuzz_fds() <= before);
	return 0;
}
