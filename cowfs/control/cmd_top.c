/* SPDX-License-Identifier: MIT */
/*
 * cowctl top: whose blocks are uncommitted, and whose are written again and again. The daemon hands out the lists of its
 * blocks in parts, and knows nothing of files; which file a block belongs to is found here (commit/owners.h), beside the
 * daemon and without holding anything still.
 *
 * With --interval each sample is compared with the one before: what is new are blocks that were not uncommitted then, and rewrites
 * since then.
 */
#include "control/cmd.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/parse.h"
#include "commit/btrfs.h"
#include "commit/owners.h"

enum { SCHEMA = 1, TRIES = 5, ROWS_DEFAULT = 20, COLUMNS = 80 };
#define TREE_FILES_MAX 1000000u
#define TREE_NS_MAX (60 * 1000000000ull)
#define INTERVAL_MIN_NS 100000000ull
#define INTERVAL_MAX_NS (24 * 3600 * 1000000000ull)

struct top_options {
	uint64_t rows, interval_ns;
	bool by_directory, by_rewrites;
};

/* What the daemon told at one time. */
struct sample {
	struct json_object *status;
	struct extents runs;
	bool counted; /* the daemon counts rewrites */
	struct tally rewrites;
	uint64_t absorbed, untracked, discarded, max_blks; /* rewrites.h */
	uint64_t generation_seq, written_bytes, time_ns;
};

struct row {
	const struct owner *o; /* NULL: a directory */
	const char *path;
	size_t path_bytes;
	uint64_t bytes, fresh_bytes, tree_bytes, files;
	uint64_t rewritten_bytes[TALLY_KINDS];
};

struct table {
	struct row *row;
	size_t n, shown;
	uint64_t bytes, fresh_bytes, files;
};

struct picture {
	const struct top_options *t;
	const struct sample *now, *before; /* before may be NULL */
	struct extents fresh;
	struct owners owners;
	struct table table;
	const char *unmapped; /* why no files are known, "" if they are */
	uint64_t gather_ns;
};

static const char *const kind_names[OWNER_KINDS] = {
	[OWNER_FILE] = "file",		    [OWNER_DIRECTORY] = "directory", [OWNER_DELETED] = "deleted",
	[OWNER_SUPER] = "superblocks",	    [OWNER_BITMAPS] = "bitmaps",     [OWNER_INODES] = "inode-tables",
	[OWNER_JOURNAL] = "journal",	    [OWNER_FREE] = "free",	     [OWNER_OTHER] = "other",
	[OWNER_XATTRS] = "extended-attributes", [OWNER_METADATA] = "metadata",
};

static const char *const kind_texts[OWNER_KINDS] = {
	[OWNER_SUPER] = "(superblock, group descriptors)",
	[OWNER_BITMAPS] = "(bitmaps)",
	[OWNER_INODES] = "(inode tables)",
	[OWNER_JOURNAL] = "(journal)",
	[OWNER_XATTRS] = "(extended attributes)",
	[OWNER_METADATA] = "(metadata)",
	[OWNER_FREE] = "(free again)",
	[OWNER_OTHER] = "(other)",
};

/* ---- a sample ---- */

static void sample_clear(struct sample *s)
{
	json_object_put(s->status);
	extents_clear(&s->runs);
	tally_clear(&s->rewrites);
	*s = (struct sample){0};
}

/* -EPROTO: not what a list of blocks looks like. */
static int add_runs(struct extents *x, struct json_object *part)
{
	struct json_object *runs = json_object_object_get(part, "runs");
	size_t n = json_object_is_type(runs, json_type_array) ? json_object_array_length(runs) : 1;

	if (n % 2)
		return -EPROTO;
	for (size_t i = 0; i < n; i += 2) {
		uint64_t blk = json_object_get_uint64(json_object_array_get_idx(runs, i));
		uint64_t blks = json_object_get_uint64(json_object_array_get_idx(runs, i + 1));
		uint64_t end = x->n ? x->e[x->n - 1].blk + x->e[x->n - 1].blks : 0;

		if (blk < end || !blks || blks > UINT32_MAX || blk > UINT32_MAX)
			return -EPROTO;
		if (extents_add(x, blk, blks) < 0)
			return -ENOMEM;
	}
	return 0;
}

/* All parts; 0, or the exit code of a failure that was told. */
static int ask_runs(const struct options *o, struct client *c, struct sample *s, bool *ret_again)
{
	struct request rq = {.command = COMMAND_CHANGES};
	struct client_error err;

	*ret_again = false;
	s->runs.n = 0;
	s->runs.blks = 0;
	for (bool first = true;; first = false) {
		struct json_object *part = client_call(c, &rq, NULL, NULL, &err);
		uint64_t seq = json_u64(part, "newest_generation"), next = json_u64(part, "next");
		int exit = EXIT_OK, e;

		if (!part)
			return cmd_fail(o, err.exit, err.error, "%s", err.why);
		e = json_true(part, "ok") ? add_runs(&s->runs, part) : 0;
		if (!json_true(part, "ok"))
			exit = cmd_fail(o, EXIT_FAILED, -EOPNOTSUPP, "%s", json_text(part, "error"));
		else if (e < 0 || (next && next <= rq.first))
			exit = cmd_fail(o, EXIT_FAILED, e < 0 ? e : -EPROTO, "the list of blocks cannot be read: %s",
					strerrordesc_np(e < 0 ? -e : EPROTO));
		json_object_put(part);
		if (exit != EXIT_OK)
			return exit;
		*ret_again = !first && seq != s->generation_seq;
		s->generation_seq = seq;
		rq.first = next;
		if (!next || *ret_again)
			return EXIT_OK;
	}
}

static int add_rewrites(struct sample *s, struct json_object *part)
{
	struct json_object *blks = json_object_object_get(part, "blocks");
	size_t n = json_object_is_type(blks, json_type_array) ? json_object_array_length(blks) : 1;

	if (n % 3)
		return -EPROTO;
	for (size_t i = 0; i < n; i += 3) {
		uint64_t v[3];

		for (size_t k = 0; k < 3; k++)
			v[k] = json_object_get_uint64(json_object_array_get_idx(blks, i + k));
		if (v[0] > UINT32_MAX || v[1] > UINT32_MAX || v[2] > UINT32_MAX)
			return -EPROTO;
		if (tally_add(&s->rewrites, v[0], v[1], v[2]) < 0)
			return -ENOMEM;
	}
	s->absorbed = json_u64(part, "absorbed");
	s->untracked = json_u64(part, "untracked");
	s->discarded = json_u64(part, "discarded");
	s->max_blks = json_u64(part, "max_blocks");
	s->counted = s->max_blks > 0;
	return 0;
}

/* A daemon that is older than this command does not know the request: then nothing was counted. */
static int ask_rewrites(const struct options *o, struct client *c, struct sample *s, const struct tally *since)
{
	struct request rq = {.command = COMMAND_REWRITES};
	struct client_error err;
	int e = 0;

	do {
		struct json_object *part = client_call(c, &rq, NULL, NULL, &err);
		uint64_t next = json_u64(part, "next");

		if (!part)
			return cmd_fail(o, err.exit, err.error, "%s", err.why);
		if (json_true(part, "ok"))
			e = next && next <= rq.first ? -EPROTO : add_rewrites(s, part);
		json_object_put(part);
		rq.first = next;
	} while (rq.first && !e);
	if (!e)
		e = tally_finish(&s->rewrites, since);
	return e ? cmd_fail(o, EXIT_FAILED, e, "the list of rewrites cannot be read: %s", strerrordesc_np(-e)) : EXIT_OK;
}

static int take_sample(const struct options *o, struct sample *ret, const struct tally *since)
{
	const struct request rq = {.command = COMMAND_STATUS};
	struct sample s = {0};
	struct client_error err;
	struct client c;
	bool again = true;
	int exit = EXIT_OK;

	if (client_open(&c, o->operands ? o->operand[0] : NULL, &err) < 0)
		return cmd_fail(o, err.exit, err.error, "%s", err.why);
	s.status = client_call(&c, &rq, NULL, NULL, &err);
	if (!s.status)
		exit = cmd_fail(o, err.exit, err.error, "%s", err.why);
	s.time_ns = now_ns();
	/* a commit in between: the last try is taken as it is */
	for (int i = 0; i < TRIES && again && exit == EXIT_OK; i++)
		exit = ask_runs(o, &c, &s, &again);
	if (exit == EXIT_OK)
		exit = ask_rewrites(o, &c, &s, since);
	client_close(&c);
	s.written_bytes = json_u64(s.status, "absorbed_bytes");
	if (exit == EXIT_OK)
		*ret = s;
	else
		sample_clear(&s);
	return exit;
}

/* ---- whose they are ---- */

static void show_progress(void *ctx, const char *phase, uint64_t done, uint64_t total)
{
	progress_show(ctx, phase, done, total);
}

/* The tree that we see there is the volume's. */
static bool mounted_here(const char *mountpoint, const char *loop)
{
	struct stat dir, dev;

	/* btrfs has numbers of its own */
	return *mountpoint && !stat(mountpoint, &dir) && !stat(loop, &dev) &&
	       (dir.st_dev == dev.st_rdev || btrfs_lies_on(mountpoint, dev.st_rdev));
}

/* 0 with p->unmapped if nobody can tell; -ENOMEM */
static int find_owners(struct picture *p, const struct owners_query *q)
{
	const char *loop = json_text(p->now->status, "loop"), *mount = json_text(p->now->status, "mountpoint");
	const char *type = json_text(p->now->status, "fs_type");
	int e = -EOPNOTSUPP;

	p->unmapped = "";
	if (!strncmp(type, "ext", 3))
		e = owners_ext(&p->owners, loop, q);
	if (!e || e == -ENOMEM)
		return e;
	if (!mounted_here(mount, loop))
		p->unmapped = "the volume is not mounted where this command can see it";
	else
		e = owners_tree(&p->owners, mount, TREE_FILES_MAX, TREE_NS_MAX, q);
	if (!e || e == -ENOMEM)
		return e;
	if (!*p->unmapped)
		p->unmapped = e == -EOPNOTSUPP ? "this file system does not tell where on the device its files lie" :
						 strerrordesc_np(-e);
	p->owners.complete = false;
	return owners_add_rest(&p->owners, q);
}

static int find_fresh(struct picture *p)
{
	const struct extents none = {0};
	bool same = p->before && p->before->generation_seq == p->now->generation_seq;

	if (!p->before)
		return 0;
	/* after a commit all that is uncommitted is new */
	return extents_without(&p->fresh, &p->now->runs, same ? &p->before->runs : &none);
}

/* Less than before: it was attached anew. */
static uint64_t written_since(const struct picture *p)
{
	return p->now->written_bytes - min_u64(p->before->written_bytes, p->now->written_bytes);
}

/* ---- rows ---- */

static int largest_first(const void *a, const void *b)
{
	const struct row *x = a, *y = b;

	if (x->fresh_bytes != y->fresh_bytes)
		return x->fresh_bytes > y->fresh_bytes ? -1 : 1;
	if (x->bytes != y->bytes)
		return x->bytes > y->bytes ? -1 : 1;
	return x->path && y->path ? strcmp(x->path, y->path) : (x->path != NULL) - (y->path != NULL);
}

static int most_rewrites_first(const void *a, const void *b)
{
	static const enum tally_kind order[] = {TALLY_NEW, TALLY_ABSORBED, TALLY_LATER};
	const struct row *x = a, *y = b;

	for (size_t i = 0; i < ARRAY_SIZE(order); i++)
		if (x->rewritten_bytes[order[i]] != y->rewritten_bytes[order[i]])
			return x->rewritten_bytes[order[i]] > y->rewritten_bytes[order[i]] ? -1 : 1;
	return largest_first(a, b);
}

static int by_path(const void *a, const void *b)
{
	const struct row *x = a, *y = b;
	int c = memcmp(x->path, y->path, x->path_bytes < y->path_bytes ? x->path_bytes : y->path_bytes);

	return c ? c : x->path_bytes < y->path_bytes ? -1 : x->path_bytes > y->path_bytes;
}

/* Rows of the same directory become one; they are sorted. How many are left. */
static size_t merge_directories(struct row *row, size_t n)
{
	size_t to = 0;

	for (size_t i = 0; i < n; i++) {
		if (to && !by_path(&row[to - 1], &row[i])) {
			row[to - 1].bytes += row[i].bytes;
			row[to - 1].fresh_bytes += row[i].fresh_bytes;
			row[to - 1].files += row[i].files;
			for (unsigned kind = 0; kind < TALLY_KINDS; kind++)
				row[to - 1].rewritten_bytes[kind] += row[i].rewritten_bytes[kind];
		} else {
			row[to++] = row[i];
		}
	}
	/* what is below a directory follows it */
	for (size_t i = 0; i < to; i++)
		for (size_t k = i; k < to && row[k].path_bytes >= row[i].path_bytes &&
				   !memcmp(row[k].path, row[i].path, row[i].path_bytes); k++)
			row[i].tree_bytes += row[k].bytes;
	return to;
}

static bool is_file(const struct owner *o)
{
	return o->kind == OWNER_FILE || o->kind == OWNER_DIRECTORY || o->kind == OWNER_DELETED;
}

static int make_table(struct picture *p)
{
	struct table *t = &p->table;
	size_t named = 0, n = 0;

	t->row = calloc(p->owners.n + 1, sizeof(*t->row));
	if (!t->row)
		return -ENOMEM;
	for (int pass = 0; pass < 2; pass++) { /* those with a path first */
		for (size_t i = 0; i < p->owners.n; i++) {
			const struct owner *o = &p->owners.o[i];
			bool in_directory = p->t->by_directory && o->path;

			if (pass == (o->path != NULL) || !(o->bytes || p->t->by_rewrites))
				continue;
			t->row[n++] = (struct row){
				.o = in_directory ? NULL : o,
				.path = o->path,
				.path_bytes = in_directory ? (size_t)(strrchr(o->path, '/') + 1 - o->path) : 0,
				.bytes = o->bytes,
				.fresh_bytes = o->fresh_bytes,
				.files = is_file(o),
			};
			memcpy(t->row[n - 1].rewritten_bytes, o->rewritten_bytes, sizeof(o->rewritten_bytes));
			t->bytes += o->bytes;
			t->fresh_bytes += o->fresh_bytes;
			t->files += is_file(o);
			named += in_directory;
		}
	}
	if (named) {
		size_t dirs;

		qsort(t->row, named, sizeof(*t->row), by_path);
		dirs = merge_directories(t->row, named);
		memmove(t->row + dirs, t->row + named, (n - named) * sizeof(*t->row));
		n -= named - dirs;
	}
	qsort(t->row, n, sizeof(*t->row), p->t->by_rewrites ? most_rewrites_first : largest_first);
	t->n = n;
	t->shown = p->t->rows ? min_u64(n, p->t->rows) : n;
	return 0;
}

/* Blocks that are shared have a share of the rewrites. */
static uint64_t rewrites_of(const struct row *r, enum tally_kind kind)
{
	return (r->rewritten_bytes[kind] + COW_BLK_BYTES / 2) / COW_BLK_BYTES;
}

/* ---- text ---- */

/* Nothing in it moves the cursor or is no character. How many columns it takes, a character each. */
static size_t make_printable(char *text)
{
	size_t columns = 0;

	while (*text) {
		size_t n = jsonw_utf8_bytes(text);
		bool control = (unsigned char)*text < 0x20 || *text == 0x7f ||
			       ((unsigned char)text[0] == 0xc2 && (unsigned char)text[1] < 0xa0);

		if (!n || control)
			memset(text, '?', n ? n : 1);
		columns += !n || control ? max_u64(n, 1) : 1;
		text += n ? n : 1;
	}
	return columns;
}

/* A path for people: below the mount point, its end if it is too long. */
static void print_path(const char *mount, const char *path, size_t path_bytes, const char *more, size_t columns)
{
	size_t n = strlen(mount) + path_bytes, from = 0, width;
	_cleanup_free_ char *text = malloc(n + 1);

	if (!text)
		return;
	snprintf(text, n + 1, "%s%.*s", mount, (int)path_bytes, path);
	width = make_printable(text);
	columns -= strlen(more);
	if (width > columns) { /* whole characters */
		for (; width > columns - 3 || (text[from] & 0xc0) == 0x80; from++)
			width -= (text[from] & 0xc0) != 0x80;
		fputs("...", stdout);
	}
	printf("%s%s\n", text + from, more);
}

static const char *mount_prefix(const struct picture *p)
{
	const char *mount = json_text(p->now->status, "mountpoint");

	return strcmp(mount, "/") ? mount : "";
}

/* What has no path; in a word if there is no room for more. */
static void print_kind(const struct picture *p, const struct owner *o, size_t columns)
{
	char text[64];

	if (o->kind == OWNER_OTHER && *p->unmapped)
		snprintf(text, sizeof(text), "(not known)");
	else if (kind_texts[o->kind])
		snprintf(text, sizeof(text), "%s", kind_texts[o->kind]);
	else
		snprintf(text, sizeof(text), "(%s, inode %llu)", o->kind == OWNER_DELETED ? "deleted, open" : "no name found",
			 (unsigned long long)o->ino);
	if (strlen(text) > columns)
		snprintf(text, sizeof(text), "(%s)", kind_names[o->kind]);
	puts(text);
}

static void print_row(const struct picture *p, const struct row *r)
{
	char more[48] = "";
	int used = printf("%11s %10s", FORMAT_SIZE(r->bytes),
			  with_commas((r->bytes + COW_BLK_BYTES - 1) / COW_BLK_BYTES));

	if (p->t->by_directory)
		used += printf(" %11s", r->o ? "" : FORMAT_SIZE(r->tree_bytes));
	if (p->before)
		used += printf(" %11s", FORMAT_SIZE(r->fresh_bytes));
	if (p->now->counted)
		used += printf(" %10s", with_commas(rewrites_of(r, p->before ? TALLY_NEW : TALLY_ABSORBED)));
	if (p->t->by_rewrites)
		used += printf(" %12s", with_commas(rewrites_of(r, TALLY_LATER)));
	used += printf("  ");
	if (r->o && r->o->links > 1 && r->o->kind == OWNER_FILE)
		snprintf(more, sizeof(more), " (of %u names)", r->o->links);
	if (r->path)
		print_path(mount_prefix(p), r->path, r->o ? strlen(r->path) : r->path_bytes, more, (size_t)(COLUMNS - used));
	else
		print_kind(p, r->o, (size_t)(COLUMNS - used));
}

static void print_rewrites(const struct picture *p)
{
	const struct sample *s = p->now;

	printf("%s rewrites of blocks in RAM since the attach: these cost the card nothing.\n", with_commas(s->absorbed));
	if (s->discarded)
		printf("%s of them were of blocks that are deleted by now.\n", with_commas(s->discarded));
	if (s->untracked)
		printf("%s of them are in no row: so many a row may have too few.\n", with_commas(s->untracked));
}

static void print_head(const struct picture *p)
{
	const struct table *t = &p->table;
	const char *mount = json_text(p->now->status, "mountpoint");

	char amount[120];
	int used = printf("%s%s%s:", json_text(p->now->status, "name"), *mount ? " on " : "", mount);

	snprintf(amount, sizeof(amount), "%s not on the card, %s blocks, %s file%s",
		 FORMAT_SIZE(blk_to_bytes(p->now->runs.blks)), with_commas(p->now->runs.blks), with_commas(t->files),
		 t->files == 1 ? "" : "s");
	printf("%c%s\n", used + 1 + (int)strlen(amount) > COLUMNS ? '\n' : ' ', amount);
	if (p->before)
		printf("%.1f s: %s written, %s of it in blocks that were not changed before\n",
		       (double)(p->now->time_ns - p->before->time_ns) / 1e9,
		       FORMAT_SIZE(written_since(p)),
		       FORMAT_SIZE(blk_to_bytes(p->fresh.blks)));
	if (p->t->by_rewrites)
		print_rewrites(p);
	if (*p->unmapped)
		printf("No files: %s.\n", p->unmapped);
	else if (!p->owners.complete)
		printf("Not all files were looked at: there are more than %s.\n", with_commas(p->owners.looked_at));
	putchar('\n');
	printf("%11s %10s%s%s%s%s  %s\n", "UNCOMMITTED", "BLOCKS", p->t->by_directory ? "   AND BELOW" : "",
	       p->before ? "         NEW" : "", p->now->counted ? "   REWRITES" : "", p->t->by_rewrites ? " AFTER COMMIT" : "",
	       p->t->by_directory ? "DIRECTORY" : "FILE");
}

static void print_table(const struct picture *p)
{
	const struct table *t = &p->table;
	uint64_t bytes = 0;

	print_head(p);
	for (size_t i = 0; i < t->shown; i++) {
		print_row(p, &t->row[i]);
		bytes += t->row[i].bytes;
	}
	if (t->shown < t->n)
		printf("%11s %10s  in %s more rows (-n)\n", FORMAT_SIZE(t->bytes - bytes), "",
		       with_commas(t->n - t->shown));
}

/* ---- JSON ---- */

static void render_row(struct jsonw *w, const struct picture *p, const struct row *r, char *path, size_t path_size)
{
	jsonw_object(w, NULL);
	jsonw_str(w, "kind", r->o ? kind_names[r->o->kind] : "directory");
	if (r->path) {
		snprintf(path, path_size, "%s%.*s", mount_prefix(p), (int)(r->o ? strlen(r->path) : r->path_bytes), r->path);
		jsonw_str(w, "path", path);
	}
	if (r->o && r->o->ino) {
		jsonw_u64(w, "inode", r->o->ino);
		jsonw_u64(w, "links", r->o->links);
	}
	if (!r->o) {
		jsonw_u64(w, "files", r->files);
		jsonw_u64(w, "subtree_bytes", r->tree_bytes);
	}
	jsonw_u64(w, "uncommitted_bytes", r->bytes);
	jsonw_u64(w, "uncommitted_blocks", (r->bytes + COW_BLK_BYTES - 1) / COW_BLK_BYTES);
	if (p->before)
		jsonw_u64(w, "new_bytes", r->fresh_bytes);
	if (p->now->counted) {
		jsonw_u64(w, "rewrites", rewrites_of(r, TALLY_ABSORBED));
		jsonw_u64(w, "rewrites_after_commit", rewrites_of(r, TALLY_LATER));
	}
	if (p->now->counted && p->before)
		jsonw_u64(w, "new_rewrites", rewrites_of(r, TALLY_NEW));
	jsonw_end(w);
}

static void render_head(struct jsonw *w, const struct picture *p)
{
	static const char *const copied[] = {"name", "device", "loop", "mountpoint", "fs_type"};

	answer_ok(w);
	jsonw_u64(w, "schema", SCHEMA);
	for (size_t i = 0; i < ARRAY_SIZE(copied); i++)
		jsonw_str(w, copied[i], json_text(p->now->status, copied[i]));
	jsonw_u64(w, "newest_generation", p->now->generation_seq);
	jsonw_u64(w, "uncommitted_bytes", blk_to_bytes(p->now->runs.blks));
	jsonw_u64(w, "uncommitted_blocks", p->now->runs.blks);
	if (p->before) {
		jsonw_seconds(w, "interval_seconds", p->now->time_ns - p->before->time_ns);
		jsonw_u64(w, "written_bytes", written_since(p));
		jsonw_u64(w, "new_bytes", blk_to_bytes(p->fresh.blks));
	}
	if (p->now->counted) {
		jsonw_u64(w, "rewrites", p->now->absorbed);
		jsonw_u64(w, "rewrites_untracked", p->now->untracked);
		jsonw_u64(w, "rewrites_discarded", p->now->discarded);
		jsonw_u64(w, "rewrites_max_blocks", p->now->max_blks);
		if (p->before)
			jsonw_u64(w, "new_rewrites", p->now->absorbed - min_u64(p->before->absorbed, p->now->absorbed));
	}
	jsonw_str(w, "by", p->t->by_directory ? "directory" : p->t->by_rewrites ? "rewrites" : "file");
	jsonw_bool(w, "complete", p->owners.complete);
	jsonw_str(w, "no_files_because", p->unmapped);
	jsonw_u64(w, "files", p->table.files);
	jsonw_u64(w, "files_looked_at", p->owners.looked_at);
	jsonw_u64(w, "files_unreadable", p->owners.unreadable);
	jsonw_seconds(w, "mapping_seconds", p->gather_ns);
	jsonw_u64(w, "rows_left_out", p->table.n - p->table.shown);
}

static int print_json(const struct picture *p)
{
	size_t room = 64 * KIB, longest = 0, mount = strlen(mount_prefix(p));
	_cleanup_free_ char *text = NULL, *path = NULL;
	struct jsonw w;

	for (size_t i = 0; i < p->table.shown; i++) {
		size_t n = p->table.row[i].path ? mount + strlen(p->table.row[i].path) : 0;

		room += 512 + 6 * n;
		longest = n > longest ? n : longest;
	}
	text = malloc(room);
	path = malloc(longest + 1);
	if (!text || !path)
		return -ENOMEM;
	jsonw_init(&w, text, room);
	render_head(&w, p);
	jsonw_array(&w, "rows");
	for (size_t i = 0; i < p->table.shown; i++)
		render_row(&w, p, &p->table.row[i], path, longest + 1);
	if (!jsonw_finish(&w))
		return -ENOBUFS;
	fputs(text, stdout);
	return 0;
}

/* ---- all of it ---- */

static int show(const struct options *o, const struct top_options *t, const struct sample *now, const struct sample *before)
{
	struct picture p = {.t = t, .now = now, .before = before};
	struct progress progress;
	const struct owners_query q = {&now->runs, &p.fresh, &now->rewrites, show_progress, &progress};
	uint64_t start_ns = now_ns();
	int e = find_fresh(&p);

	progress_start(&progress);
	if (!e)
		e = find_owners(&p, &q);
	p.gather_ns = now_ns() - start_ns;
	progress_end(&progress);
	if (!e)
		e = make_table(&p);
	if (!e && has_option(o, OPT_JSON)) {
		e = print_json(&p);
	} else if (!e) {
		if (t->interval_ns)
			fputs(isatty(STDOUT_FILENO) ? "\033[H\033[2J" : before ? "\n" : "", stdout);
		print_table(&p);
	}
	free(p.table.row);
	owners_clear(&p.owners);
	extents_clear(&p.fresh);
	return e ? cmd_fail(o, EXIT_FAILED, e, "%s", strerrordesc_np(-e)) : EXIT_OK;
}

static void pause_ns(uint64_t ns)
{
	struct timespec ts = {.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};

	while (nanosleep(&ts, &ts) < 0 && errno == EINTR)
		;
}

static int take_options(const struct options *o, struct top_options *t)
{
	const char *by = has_option(o, OPT_BY) ? o->value[OPT_BY] : "file";

	*t = (struct top_options){.rows = ROWS_DEFAULT,
				  .by_directory = !strcmp(by, "directory"),
				  .by_rewrites = !strcmp(by, "rewrites")};
	if (!t->by_directory && !t->by_rewrites && strcmp(by, "file"))
		return cmd_fail(o, EXIT_USAGE, -EINVAL, "--by %s is none of file, directory, rewrites", by);
	if (has_option(o, OPT_ROWS) && parse_u64(o->value[OPT_ROWS], &t->rows) < 0)
		return cmd_fail(o, EXIT_USAGE, -EINVAL, "-n %s is not a number of rows", o->value[OPT_ROWS]);
	if (has_option(o, OPT_INTERVAL) &&
	    (parse_duration_ns(o->value[OPT_INTERVAL], &t->interval_ns) < 0 || t->interval_ns < INTERVAL_MIN_NS ||
	     t->interval_ns > INTERVAL_MAX_NS))
		return cmd_fail(o, EXIT_USAGE, -EINVAL, "--interval %s is not a time from 100ms to 24h, such as 5s",
				o->value[OPT_INTERVAL]);
	if (has_option(o, OPT_ONCE) && !t->interval_ns)
		return cmd_fail(o, EXIT_USAGE, -EINVAL, "--once needs --interval");
	return EXIT_OK;
}

int cmd_top(const struct options *o)
{
	struct sample now = {0}, before = {0};
	struct top_options t;
	int exit = take_options(o, &t);
	bool more = t.interval_ns && exit == EXIT_OK;

	if (exit == EXIT_OK)
		exit = take_sample(o, &now, NULL);
	if (exit == EXIT_OK && t.by_rewrites && !now.counted)
		exit = cmd_fail(o, EXIT_FAILED, -EOPNOTSUPP, "the daemon of this volume does not count rewrites");
	/* the one that is asked for is the difference */
	if (exit == EXIT_OK && !has_option(o, OPT_ONCE))
		exit = show(o, &t, &now, NULL);
	while (more && exit == EXIT_OK && !fflush(stdout)) {
		sample_clear(&before);
		before = now;
		now = (struct sample){0};
		pause_ns(t.interval_ns);
		exit = take_sample(o, &now, &before.rewrites);
		if (exit == EXIT_OK)
			exit = show(o, &t, &now, &before);
		more = !has_option(o, OPT_ONCE);
	}
	sample_clear(&now);
	sample_clear(&before);
	return exit;
}
