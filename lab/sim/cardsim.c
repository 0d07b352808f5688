/* SPDX-License-Identifier: MIT */
/* cowfs-cardsim: a simulated flash card for any file system, and the profiles of real cards. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <glob.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <json-c/json.h>

#include "base/io.h"
#include "base/parse.h"
#include "base/program.h"
#include "sim/sim.h"
#include "wire/jsonw.h"
#include "sim/cardfs.h"
#include "sim/describe.h"
#include "export/loop.h"

enum { EXIT_OK, EXIT_FAILED, EXIT_USAGE };

#define CACHE_BYTES (32 * MIB)
#define STOP_WAIT_MS 60000
#define TEXT_BYTES 4096

static int PRINTF(2, 3) complain(int code, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fputs("cowfs-cardsim: ", stderr);
	vfprintf(stderr, fmt, ap);
	fputc('\n', stderr);
	va_end(ap);
	return code;
}

static void help(void)
{
	puts("usage: cowfs-cardsim [OPTION]... PROFILE SIZE DIR\n"
	     "       cowfs-cardsim COMMAND ...\n"
	     "A simulated flash card: the file DIR/card, with the behaviour and by the clock of a real one. No request takes\n"
	     "that time, it is only counted. Prints the name of the file, or of the loop device.\n\n"
	     "  --loop              attach a loop device to it, with direct I/O\n"
	     "  --image FILE        its contents: read at the start, if there are any, and written at the end\n"
	     "  --profiles FILE     profiles of your own, beside those of the program\n"
	     "  --fresh             nothing was ever written to it (default: all units hold data)\n"
	     "  --cache SIZE        what is not flushed and would be lost (default: 32M; 0: no limit)\n"
	     "  --no-discard        it knows no DISCARD\n"
	     "  --wear MODE         none, dynamic, zone or global (default: the profile's)\n"
	     "  --erase-limit N     program/erase cycles that units bear\n"
	     "  --trace FILE        records all writes, flushes and discards: lab/sim/trace.h\n"
	     "  --trace-contents    and what was written, beside it in NAME.data\n"
	     "  --real-time         requests take the time that they would\n"
	     "  --seed N            of what is random at power cuts (default: 1)\n"
	     "  --foreground        stay, until the card is stopped\n"
	     "  --help              show this help\n"
	     "  --version           show the version\n\n"
	     "Commands:\n"
	     "  list [--json] [--profiles FILE]   profiles\n"
	     "  show [--profiles FILE] PROFILE    one of them, and where each number comes from\n"
	     "  stat [--json] DIR   virtual time, bytes, erases\n"
	     "  reset DIR           counters and clock to zero\n"
	     "  settle DIR          the card completes its pending work: closes units, merges its log\n"
	     "  cut DIR N           the power goes at the N-th write or flush from now: all I/O fails\n"
	     "  power DIR FATE      and comes back. What was not flushed is kept, undone, torn, garbage or random\n"
	     "  fail DIR KIND,... N once|forever   reads, writes or flushes (read, write, flush) fail from the N-th on\n"
	     "  lie DIR N           the last N flushes are not done yet when the power goes\n"
	     "  collateral DIR on|off   a cut damages the erase block that is being written\n"
	     "  mark DIR commit|sync    a point in the trace\n"
	     "  save DIR FILE       what is durable, as an image\n"
	     "  stop DIR            detaches its loop device, unmounts, and waits until image and trace are written");
}

/* ---- output of stat ---- */

static double mib(uint64_t bytes)
{
	return (double)bytes / (double)MIB;
}

static size_t stat_text(const struct card *c, char *buf, size_t size_bytes)
{
	const struct flash_model *m = sim_model(c);
	const struct flash_profile *p = flash_model_profile(m);
	struct flash_stats st;
	int n;

	flash_model_stats(m, &st);
	n = snprintf(
		buf, size_bytes,
		"card          %s, %s, units of %s\n"
		"state         %s\n"
		"virtual time  %.6f s, longest request %.6f s\n"
		"read          %llu requests, %.1f MiB\n"
		"written       %llu requests, %.1f MiB\n"
		"flushed       %llu times; %zu blocks are in the cache\n"
		"discarded     %llu requests, %.1f MiB\n"
		"programmed    %.1f MiB, of it copied %.1f MiB; write amplification %.2f\n"
		"erases        %llu; most for unit %llu, %llu; of a physical one %llu\n"
		"merges        switch %llu, partial %llu, full %llu; absorbed writes %llu\n"
		"spare units   %llu left, %llu worn out\n",
		p->id, FORMAT_SIZE(c->geo.size_bytes), FORMAT_SIZE(p->unit_bytes),
		sim_is_dead(c) ? "the power is off"
		: st.read_only ? "worn out: read-only"
			       : "works",
		(double)st.clock_ns / 1e9, (double)st.longest_ns / 1e9,
		(unsigned long long)st.reads, mib(st.read_bytes), (unsigned long long)st.writes,
		mib(st.written_bytes), (unsigned long long)st.flushes, sim_pending(c),
		(unsigned long long)st.discards, mib(st.discarded_bytes), mib(st.programmed_bytes),
		mib(st.copied_bytes),
		st.written_bytes ? (double)st.programmed_bytes / (double)st.written_bytes : 0.0,
		(unsigned long long)st.erases, (unsigned long long)st.hottest_unit,
		(unsigned long long)st.hottest_erases, (unsigned long long)st.worst_erases,
		(unsigned long long)st.switch_merges, (unsigned long long)st.partial_merges,
		(unsigned long long)st.full_merges, (unsigned long long)st.absorbed_writes,
		(unsigned long long)st.spares_left, (unsigned long long)st.bad_units);
	return n < 0 ? 0 : min_u64((uint64_t)n, size_bytes - 1);
}

static size_t stat_json(const struct card *c, char *buf, size_t size_bytes)
{
	const struct flash_model *m = sim_model(c);
	struct flash_stats st;
	struct jsonw w;

	flash_model_stats(m, &st);
	jsonw_init(&w, buf, size_bytes);
	jsonw_object(&w, NULL);
	jsonw_str(&w, "profile", flash_model_profile(m)->id);
	jsonw_u64(&w, "pid", (uint64_t)getpid());
	jsonw_u64(&w, "size_bytes", c->geo.size_bytes);
	jsonw_u64(&w, "unit_bytes", flash_model_profile(m)->unit_bytes);
	jsonw_bool(&w, "powered", !sim_is_dead(c));
	jsonw_bool(&w, "read_only", st.read_only);
	jsonw_seconds(&w, "virtual_seconds", st.clock_ns);
	jsonw_u64(&w, "virtual_ns", st.clock_ns);
	jsonw_u64(&w, "busy_ns", st.busy_ns);
	jsonw_u64(&w, "longest_request_ns", st.longest_ns);
	jsonw_u64(&w, "read_calls", st.reads);
	jsonw_u64(&w, "read_bytes", st.read_bytes);
	jsonw_u64(&w, "read_ns", st.read_ns);
	jsonw_u64(&w, "write_calls", st.writes);
	jsonw_u64(&w, "written_bytes", st.written_bytes);
	jsonw_u64(&w, "flushes", st.flushes);
	jsonw_u64(&w, "cached_blocks", sim_pending(c));
	/* writes and flushes since the card was made, as counted by cut */
	jsonw_u64(&w, "operations", sim_ops(c));
	jsonw_u64(&w, "discards", st.discards);
	jsonw_u64(&w, "discarded_bytes", st.discarded_bytes);
	jsonw_u64(&w, "programmed_bytes", st.programmed_bytes);
	jsonw_u64(&w, "copied_bytes", st.copied_bytes);
	jsonw_u64(&w, "erases", st.erases);
	jsonw_u64(&w, "hottest_unit", st.hottest_unit);
	jsonw_u64(&w, "hottest_unit_erases", st.hottest_erases);
	jsonw_u64(&w, "worst_physical_erases", st.worst_erases);
	jsonw_u64(&w, "switch_merges", st.switch_merges);
	jsonw_u64(&w, "partial_merges", st.partial_merges);
	jsonw_u64(&w, "full_merges", st.full_merges);
	jsonw_u64(&w, "absorbed_writes", st.absorbed_writes);
	jsonw_u64(&w, "spare_units", st.spares_left);
	jsonw_u64(&w, "bad_units", st.bad_units);
	/* in thousandths, to keep it an integer; 0 before the first write */
	jsonw_u64(&w, "write_amplification_permille",
		  st.written_bytes ? mul_div_u64(st.programmed_bytes, 1000, st.written_bytes) : 0);
	return jsonw_finish(&w);
}

static size_t tell(const struct card *c, bool json, char *buf, size_t size_bytes)
{
	return json ? stat_json(c, buf, size_bytes) : stat_text(c, buf, size_bytes);
}

/* ---- start ---- */

struct start {
	const char *profile, *dir, *image, *profiles, *trace, *wear;
	uint64_t size_bytes, cache_bytes, seed, erase_limit;
	bool loop, fresh, contents, real_time, no_discard, foreground;
	char dir_path[PATH_MAX], image_path[PATH_MAX];
	struct card *card;
	struct cardfs fs;
	uint64_t saved_changes; /* the value of changes saved in the image */
	int ready_fd;
};

static int open_profiles(struct flash_profiles **ret, const char *path)
{
	char why[512];
	int r = flash_profiles_open(ret, path, why, sizeof(why));

	return r < 0 ? complain(EXIT_FAILED, "%s%s%s", path ? path : "profiles", ": ", why)
		     : EXIT_OK;
}

static int no_profile(const char *id)
{
	return complain(EXIT_USAGE, "unknown profile '%s' (see 'cowfs-cardsim list')", id);
}

static int find_profile(const struct start *s, struct flash_profile *ret)
{
	static const char *const modes[] = { "none", "dynamic", "zone", "global" };
	const struct flash_profile *p;
	struct flash_profiles *ps;
	int r = open_profiles(&ps, s->profiles);

	if (r)
		return r;
	p = flash_profiles_find(ps, s->profile);
	if (p)
		*ret = *p;
	flash_profiles_close(ps);
	if (!p)
		return no_profile(s->profile);
	if (s->erase_limit)
		ret->erase_limit = (uint32_t)s->erase_limit;
	if (!s->wear)
		return EXIT_OK;
	for (size_t i = 0; i < ARRAY_SIZE(modes); i++)
		if (!strcmp(s->wear, modes[i])) {
			ret->wear = (enum flash_wear)i;
			ret->zone_bytes = max_u64(ret->zone_bytes, ret->unit_bytes);
			return EXIT_OK;
		}
	return complain(EXIT_USAGE, "--wear must be none, dynamic, zone or global, not '%s'",
			s->wear);
}

static int make_card(struct start *s)
{
	struct sim_params params = { .size_bytes = s->size_bytes, .identity = s->profile };
	struct flash_model *m;
	struct flash_profile p;
	int r = find_profile(s, &p);

	if (r)
		return r;
	params.erase_block_bytes = p.unit_bytes <= UINT32_MAX ? (uint32_t)p.unit_bytes : 0;
	r = sim_new(&s->card, &params);
	if (!r)
		r = flash_model_new(&m, &p, s->card->geo.size_bytes, s->fresh ? FLASH_FRESH : 0);
	if (r < 0)
		return complain(EXIT_FAILED, "cannot simulate a card of this size: %s",
				strerror(-r));
	sim_set_model(s->card, m);
	sim_seed(s->card, s->seed);
	sim_set_cache(s->card, s->cache_bytes / COW_BLK_BYTES);
	if (s->image && access(s->image, F_OK) == 0)
		r = cardfs_load(s->card, s->image);
	if (r < 0)
		return complain(EXIT_FAILED, "%s: %s", s->image,
				r == -EFBIG ? "larger than the card" : strerror(-r));
	r = card_set_writable(s->card, true);
	if (!r && s->trace)
		r = flash_trace_create(&s->fs.trace, s->trace, s->card->geo.size_bytes,
				       s->contents);
	return r < 0 ? complain(EXIT_FAILED, "%s: %s", s->trace, strerror(-r)) : EXIT_OK;
}

/* Reports through the pipe to the starter that the card is ready. */
static void ready(void *ctx)
{
	struct start *s = ctx;

	if (s->ready_fd >= 0) {
		int ignored = io_write_full(s->ready_fd, "+", 1);

		(void)ignored;
		close(steal_fd(&s->ready_fd));
	}
	if (!s->foreground) /* otherwise the reader of the pipe would never see its end */
		dup2(STDOUT_FILENO, STDERR_FILENO);
}

/* Called for stop, which can report an error, and at the end. */
static int finish(struct cardfs *f)
{
	struct start *s = container_of(f, struct start, fs);
	int r = f->trace ? flash_trace_flush(f->trace) : 0;

	if (!r && s->image && f->changes != s->saved_changes)
		r = cardfs_save(s->card, s->image_path);
	if (!r)
		s->saved_changes = f->changes;
	return r;
}

static int serve(struct start *s)
{
	int r, code = EXIT_OK;

	s->fs.card = s->card;
	s->fs.tell = tell;
	s->fs.finish = finish;
	s->saved_changes = UINT64_MAX;
	r = cardfs_serve(&s->fs, s->dir_path, ready, s);
	if (r < 0)
		code = complain(EXIT_FAILED, "%s: %s", s->dir_path, strerror(-r));
	r = s->ready_fd < 0 ? finish(&s->fs) : 0;
	if (r < 0)
		code = complain(EXIT_FAILED, "image or trace of %s: %s", s->dir_path, strerror(-r));
	r = flash_trace_finish(s->fs.trace);
	if (r < 0)
		code = complain(EXIT_FAILED, "%s: %s", s->trace, strerror(-r));
	card_close(s->card);
	return code;
}

/* Makes a path that stays valid after a change of directory. */
static int absolute(const char *path, char ret[PATH_MAX])
{
	char cwd[PATH_MAX];

	if (path[0] == '/')
		return snprintf(ret, PATH_MAX, "%s", path) < PATH_MAX ? 0 : -ENAMETOOLONG;
	if (!getcwd(cwd, sizeof(cwd)))
		return -errno;
	return snprintf(ret, PATH_MAX, "%s/%s", cwd, path) < PATH_MAX ? 0 : -ENAMETOOLONG;
}

/* Runs in the starter, because the loop device sends requests to the server. */
static int attach_loop(const struct start *s)
{
	char path[PATH_MAX + 8], label[64];
	_cleanup_close_ int fd = -1;
	struct loop_dev d;
	int r;

	snprintf(path, sizeof(path), "%s/card", s->dir_path);
	if (!s->loop) {
		puts(path);
		return EXIT_OK;
	}
	fd = open(path, O_RDWR | O_DIRECT | O_CLOEXEC);
	snprintf(label, sizeof(label), "cardsim:%s", s->profile);
	r = fd < 0 ? -errno
		   : loop_attach(&d, fd,
				 &(struct loop_limits){ 128, LOOP_REQUEST_KB, LOOP_REQUESTS },
				 label, false, NULL, -1);
	if (r < 0)
		return complain(EXIT_FAILED, "a loop device for %s: %s", path, strerror(-r));
	puts(d.path);
	close(d.fd);
	close(d.dev_dirfd);
	close(d.queue_dirfd);
	return EXIT_OK;
}

static int stop(const char *dir);

static volatile sig_atomic_t asked_to_stop;

static void on_signal(int sig)
{
	(void)sig;
	asked_to_stop = 1;
}

/* In the foreground: waits as long as the card is mounted; a signal stops it. */
static int wait_for(const struct start *s, pid_t pid)
{
	struct sigaction sa = { .sa_handler = on_signal };
	int status;

	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	while (waitpid(pid, &status, 0) < 0) {
		if (errno != EINTR)
			return EXIT_FAILED;
		if (asked_to_stop && stop(s->dir_path) != EXIT_OK)
			asked_to_stop = 0;
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_FAILED;
}

static void to_background(void)
{
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (fd >= 0) {
		dup2(fd, STDIN_FILENO);
		dup2(fd, STDOUT_FILENO);
		if (fd > STDERR_FILENO)
			close(fd);
	}
	if (chdir("/") < 0)
		complain(0, "/: %s", strerror(errno));
}

/* Frees the starter's copies; the server has its own. */
static void forget_card(struct start *s)
{
	int ignored = flash_trace_finish(s->fs.trace);

	(void)ignored;
	card_close(s->card);
}

static int launch(struct start *s)
{
	int pipe_fd[2], code;
	char byte;
	pid_t pid = -1;

	code = make_card(s);
	fflush(stdout);
	if (!code && (pipe2(pipe_fd, O_CLOEXEC) < 0 || (pid = fork()) < 0))
		code = complain(EXIT_FAILED, "%s", strerror(errno));
	if (!code && pid == 0) {
		close(pipe_fd[0]);
		s->ready_fd = pipe_fd[1];
		setsid(); /* a terminal's ^C goes to the starter */
		to_background();
		exit(serve(s));
	}
	forget_card(s);
	if (code)
		return code;
	close(pipe_fd[1]);
	if (read(pipe_fd[0], &byte, 1) != 1) {
		int status;

		waitpid(pid, &status, 0);
		return EXIT_FAILED; /* it has reported the reason */
	}
	close(pipe_fd[0]);
	code = attach_loop(s);
	fflush(stdout);
	if (code) {
		stop(s->dir_path);
		waitpid(pid, NULL, 0);
		return code;
	}
	return s->foreground ? wait_for(s, pid) : EXIT_OK;
}

enum { DONE = -1 };

enum {
	LOOP = 256,
	IMAGE,
	PROFILES,
	FRESH,
	CACHE,
	NO_DISCARD,
	WEAR,
	LIMIT,
	TRACE,
	CONTENTS,
	REAL_TIME,
	SEED,
	FOREGROUND,
	HELP,
	VERSION
};

static const struct option start_options[] = { { "loop", 0, NULL, LOOP },
					       { "image", 1, NULL, IMAGE },
					       { "profiles", 1, NULL, PROFILES },
					       { "fresh", 0, NULL, FRESH },
					       { "cache", 1, NULL, CACHE },
					       { "no-discard", 0, NULL, NO_DISCARD },
					       { "wear", 1, NULL, WEAR },
					       { "erase-limit", 1, NULL, LIMIT },
					       { "trace", 1, NULL, TRACE },
					       { "trace-contents", 0, NULL, CONTENTS },
					       { "real-time", 0, NULL, REAL_TIME },
					       { "seed", 1, NULL, SEED },
					       { "foreground", 0, NULL, FOREGROUND },
					       { "help", 0, NULL, HELP },
					       { "version", 0, NULL, VERSION },
					       { 0 } };

/* EXIT_OK, DONE if nothing else is to be done, or another exit code. */
static int take_option(struct start *s, int o)
{
	switch (o) {
	case LOOP:
		s->loop = true;
		break;
	case IMAGE:
		s->image = optarg;
		break;
	case PROFILES:
		s->profiles = optarg;
		break;
	case FRESH:
		s->fresh = true;
		break;
	case NO_DISCARD:
		s->no_discard = true;
		break;
	case WEAR:
		s->wear = optarg;
		break;
	case TRACE:
		s->trace = optarg;
		break;
	case CONTENTS:
		s->contents = true;
		break;
	case REAL_TIME:
		s->real_time = true;
		break;
	case FOREGROUND:
		s->foreground = true;
		break;
	case CACHE:
		if (parse_size(optarg, &s->cache_bytes) < 0 ||
		    (s->cache_bytes && s->cache_bytes < 2 * COW_BLK_BYTES))
			return complain(EXIT_USAGE, "--cache is 0 or a size from 8K on, not '%s'",
					optarg);
		break;
	case LIMIT:
		if (parse_u64(optarg, &s->erase_limit) < 0 || !s->erase_limit ||
		    s->erase_limit > 1000000000)
			return complain(EXIT_USAGE,
					"--erase-limit is a number from 1 to 1000000000, not '%s'",
					optarg);
		break;
	case SEED:
		if (parse_u64(optarg, &s->seed) < 0)
			return complain(EXIT_USAGE, "--seed is a number, not '%s'", optarg);
		break;
	case HELP:
		help();
		return DONE;
	case VERSION:
		puts("cowfs-cardsim " COWFS_VERSION);
		return DONE;
	default:
		return EXIT_USAGE;
	}
	return EXIT_OK;
}

/* A second card would lie over the first one, and over files that someone wants to see. */
static int refuse_folder(const struct start *s)
{
	DIR *d = opendir(s->dir_path);
	bool empty = true;

	if (!d)
		return complain(EXIT_FAILED, "%s: %s", s->dir, strerror(errno));
	for (struct dirent *e; empty && (e = readdir(d));)
		empty = !strcmp(e->d_name, ".") || !strcmp(e->d_name, "..");
	closedir(d);
	return empty ? 0
		     : complain(EXIT_FAILED,
				"%s: is not empty (a running card? cowfs-cardsim stop %s)", s->dir,
				s->dir);
}

static int start(int argc, char **argv)
{
	struct start s = { .cache_bytes = CACHE_BYTES, .seed = 1, .ready_fd = -1 };
	int o, exit;

	while ((o = getopt_long(argc, argv, "+", start_options, NULL)) >= 0) {
		exit = take_option(&s, o);
		if (exit != EXIT_OK)
			return exit == DONE ? EXIT_OK : exit;
	}
	if (argc - optind != 3)
		return complain(EXIT_USAGE,
				"PROFILE SIZE DIR, or a command, are needed (try --help)");
	if (s.contents && !s.trace)
		return complain(EXIT_USAGE, "--trace-contents is for a --trace");
	s.profile = argv[optind];
	s.dir = argv[optind + 2];
	if (parse_size(argv[optind + 1], &s.size_bytes) < 0 || s.size_bytes < MIB ||
	    s.size_bytes > 1024 * GIB)
		return complain(EXIT_USAGE, "SIZE is from 1M to 1024G, not '%s'", argv[optind + 1]);
	if (!realpath(s.dir, s.dir_path))
		return complain(EXIT_FAILED, "%s: %s", s.dir, strerror(errno));
	o = refuse_folder(&s);
	if (o)
		return o;
	if (s.image && absolute(s.image, s.image_path) < 0)
		return complain(EXIT_FAILED, "%s: the name is too long", s.image);
	s.fs.real_time = s.real_time;
	s.fs.no_discard = s.no_discard;
	return launch(&s);
}

/* ---- commands to a running card ---- */

static int open_in(const char *dir, const char *name, int flags)
{
	char path[PATH_MAX];
	int fd;

	if (snprintf(path, sizeof(path), "%s/%s", dir, name) >= PATH_MAX)
		return -ENAMETOOLONG;
	fd = open(path, flags | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static int no_card(const char *dir, int r)
{
	return complain(EXIT_FAILED, "%s: %s", dir,
			r == -ENOENT || r == -ENOTDIR ? "no simulated card" : strerror(-r));
}

static int read_in(const char *dir, const char *name, char *buf, size_t size_bytes)
{
	_cleanup_close_ int fd = open_in(dir, name, O_RDONLY);
	ssize_t n;

	if (fd < 0)
		return fd;
	n = read(fd, buf, size_bytes - 1);
	if (n < 0)
		return -errno;
	buf[n] = 0;
	return 0;
}

static int tell_card(const char *dir, const char *what)
{
	_cleanup_close_ int fd = open_in(dir, "control", O_WRONLY);

	if (fd < 0)
		return no_card(dir, fd);
	if (write(fd, what, strlen(what)) >= 0)
		return EXIT_OK;
	if (errno == EINVAL)
		return complain(EXIT_USAGE, "not a command: '%s' (try --help)", what);
	if (errno == ENODATA)
		return complain(EXIT_FAILED, "it runs without --trace");
	return complain(EXIT_FAILED, "%s: %s", what, strerror(errno));
}

/* Sends the command followed by the words after DIR */
static int send(const char *command, char **argv)
{
	char line[PATH_MAX + 16], path[PATH_MAX];
	size_t n = (size_t)snprintf(line, sizeof(line), "%s", command);

	for (char **a = argv + 1; *a; a++) {
		const char *word = *a;

		if (!strcmp(command, "save")) {
			if (absolute(word, path) < 0)
				return complain(EXIT_FAILED, "%s: the name is too long", word);
			word = path;
		}
		n += (size_t)snprintf(line + n, sizeof(line) - n, " %s", word);
		if (n >= sizeof(line))
			return complain(EXIT_USAGE, "%s: too long", command);
	}
	return tell_card(argv[0], line);
}

static int show_stat(const char *dir, bool json)
{
	char buf[TEXT_BYTES];
	int r = read_in(dir, json ? "stat.json" : "stat", buf, sizeof(buf));

	if (r < 0)
		return no_card(dir, r);
	fputs(buf, stdout);
	return EXIT_OK;
}

/* Detaches the loop devices on this file. */
static int detach_loops(const char *card)
{
	int code = EXIT_OK;
	glob_t g;

	if (glob("/sys/block/loop*/loop/backing_file", 0, NULL, &g))
		return EXIT_OK;
	for (size_t i = 0; i < g.gl_pathc && code == EXIT_OK; i++) {
		char backing[PATH_MAX];
		struct loop_dev d = { .fd = -1, .queue_dirfd = -1 };
		int r;

		if (io_read_text(AT_FDCWD, g.gl_pathv[i], backing, sizeof(backing)) < 0 ||
		    strcmp(backing, card) ||
		    sscanf(g.gl_pathv[i], "/sys/block/loop%u/", &d.number) != 1)
			continue;
		snprintf(d.path, sizeof(d.path), "/dev/loop%u", d.number);
		d.dev_dirfd = open("/dev", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		d.fd = open(d.path, O_RDONLY | O_CLOEXEC);
		r = d.fd < 0 || d.dev_dirfd < 0 ? -errno : loop_detach(&d);
		if (r < 0)
			code = complain(EXIT_FAILED, "%s: %s", d.path,
					r == -EBUSY ? "is in use" : strerror(-r));
	}
	globfree(&g);
	return code;
}

static pid_t server_of(const char *dir)
{
	char buf[TEXT_BYTES];
	struct json_object *o, *v;
	pid_t pid = -1;

	if (read_in(dir, "stat.json", buf, sizeof(buf)) < 0)
		return -1;
	o = json_tokener_parse(buf);
	if (json_object_object_get_ex(o, "pid", &v))
		pid = (pid_t)json_object_get_int(v);
	json_object_put(o);
	return pid;
}

static int stop(const char *dir)
{
	char path[PATH_MAX], card[PATH_MAX + 8];
	_cleanup_close_ int pid_fd = -1;
	struct pollfd p;
	pid_t pid;
	int code;

	if (!realpath(dir, path))
		return complain(EXIT_FAILED, "%s: %s", dir, strerror(errno));
	pid = server_of(path);
	if (pid <= 0)
		return no_card(dir, -ENOENT);
	pid_fd = (int)syscall(SYS_pidfd_open, pid, 0);
	snprintf(card, sizeof(card), "%s/card", path);
	code = detach_loops(card);
	if (!code)
		code = tell_card(path, "finish");
	if (code)
		return code;
	if (umount2(path, 0) < 0)
		return complain(EXIT_FAILED, "%s: %s", dir, strerror(errno));
	p = (struct pollfd){ .fd = pid_fd, .events = POLLIN };
	if (pid_fd >= 0 && poll(&p, 1, STOP_WAIT_MS) == 0)
		return complain(EXIT_FAILED, "%s: is unmounted, but process %d has not ended yet",
				dir, (int)pid);
	return EXIT_OK;
}

/* ---- profiles ---- */

static int list(const char *path, bool json)
{
	struct flash_profiles *ps;
	int code = open_profiles(&ps, path);
	struct json_object *all = json_object_new_array();

	for (size_t i = 0; !code && i < flash_profiles_count(ps); i++) {
		const struct flash_profile *p = flash_profiles_at(ps, i);
		struct json_object *o = json_object_new_object();

		if (!json)
			printf("%-30s %s\n", p->id, p->title);
		json_object_object_add(o, "profile", json_object_new_string(p->id));
		json_object_object_add(o, "title", json_object_new_string(p->title));
		json_object_object_add(o, "source", json_object_new_string(p->source));
		json_object_object_add(
			o, "class",
			json_object_new_string(p->class == FLASH_DISK ? "disk" : "card"));
		json_object_object_add(o, "capacity_bytes",
				       json_object_new_int64((int64_t)p->capacity_bytes));
		json_object_object_add(o, "unit_bytes",
				       json_object_new_int64((int64_t)p->unit_bytes));
		json_object_object_add(o, "members", json_object_new_int((int)p->members));
		json_object_object_add(o, "has_write", json_object_new_boolean(p->has_write));
		json_object_array_add(all, o);
	}
	if (!code && json)
		puts(json_object_to_json_string_ext(all, JSON_C_TO_STRING_PLAIN));
	json_object_put(all);
	if (!code)
		flash_profiles_close(ps);
	return code;
}

static bool show_key(void *ctx, const char *key, const char *value, const char *from)
{
	(void)ctx;
	printf("%-20s %s\n", key, value);
	if (*from)
		printf("%-20s   %s\n", "", from);
	return true;
}

static int show(const char *path, const char *id)
{
	struct flash_profiles *ps;
	int code = open_profiles(&ps, path);
	size_t i = 0;

	if (code)
		return code;
	while (i < flash_profiles_count(ps) && strcmp(flash_profiles_at(ps, i)->id, id))
		i++;
	if (i == flash_profiles_count(ps)) {
		code = no_profile(id);
	} else {
		printf("%s\n%-20s %s\n", flash_profiles_at(ps, i)->title, "source",
		       flash_profiles_at(ps, i)->source);
		profile_describe(ps, i, show_key, NULL);
	}
	flash_profiles_close(ps);
	return code;
}

/* ---- commands ---- */

static const struct {
	const char *name;
	int words;
	bool is_sent, json, profiles;
} commands[] = {
	{ "list", 0, .json = true, .profiles = true },
	{ "show", 1, .profiles = true },
	{ "stat", 1, .json = true },
	{ "stop", 1, .is_sent = false },
	{ "reset", 1, .is_sent = true },
	{ "settle", 1, .is_sent = true },
	{ "cut", 2, .is_sent = true },
	{ "power", 2, .is_sent = true },
	{ "fail", 4, .is_sent = true },
	{ "lie", 2, .is_sent = true },
	{ "collateral", 2, .is_sent = true },
	{ "mark", 2, .is_sent = true },
	{ "save", 2, .is_sent = true },
};

static int command(size_t c, int argc, char **argv)
{
	static const struct option options[] = { { "json", 0, NULL, 'j' },
						 { "profiles", 1, NULL, 'p' },
						 { "help", 0, NULL, 'h' },
						 { 0 } };
	const char *name = commands[c].name, *profiles = NULL;
	bool json = false;
	int o;

	while ((o = getopt_long(argc, argv, "", options, NULL)) >= 0) {
		if (o == 'h') {
			help();
			return EXIT_OK;
		}
		if (o == '?')
			return EXIT_USAGE;
		if ((o == 'j' && !commands[c].json) || (o == 'p' && !commands[c].profiles))
			return complain(EXIT_USAGE, "%s has no such option", name);
		json |= o == 'j';
		profiles = o == 'p' ? optarg : profiles;
	}
	argv += optind;
	if (argc - optind != commands[c].words)
		return complain(EXIT_USAGE, "%s: wrong number of words (try --help)", name);
	if (commands[c].is_sent)
		return send(name, argv);
	if (!strcmp(name, "list"))
		return list(profiles, json);
	if (!strcmp(name, "show"))
		return show(profiles, argv[0]);
	return !strcmp(name, "stat") ? show_stat(argv[0], json) : stop(argv[0]);
}

int main(int argc, char **argv)
{
	program_begin();
	for (size_t c = 0; argc > 1 && c < ARRAY_SIZE(commands); c++)
		if (!strcmp(argv[1], commands[c].name))
			return command(c, argc - 1, argv + 1);
	return start(argc, argv);
}
