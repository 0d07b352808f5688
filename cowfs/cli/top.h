/* SPDX-License-Identifier: MIT */
/*
 * The parts of cowctl top: what the daemon reports (top_sample.c), the owners of the blocks
 * (cmd_top.c), the output (top_print.c).
 */
#ifndef COWFS_CLI_TOP_H
#define COWFS_CLI_TOP_H

#include "fs/owners.h"
#include "attach/view_mount.h"
#include "cli/cmd.h"
#include "files/walk.h"

struct top_options {
	uint64_t rows, interval_ns;
	bool by_directory;
};

/* What the daemon reported at one time. */
struct sample {
	struct json_object *status;
	struct extents runs;
	uint64_t generation_seq, written_bytes, time_ns;
};

struct row {
	const struct owner *o; /* NULL: a directory */
	const char *path;
	size_t path_bytes;
	uint64_t bytes, fresh_bytes, tree_bytes, files;
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
	const char *unmapped; /* why no files are known, "" if they are known */
	uint64_t gather_ns;
};

/* Asks the daemon of the volume in o. Returns the exit code of a failure that it has reported. */
int top_sample_take(const struct options *o, struct sample *ret) MUST_CHECK;
void top_sample_clear(struct sample *s);
/* The mount point in front of all paths, which begin with a slash; "" for the root. */
const char *top_mount_prefix(const struct sample *s);
/* Begins a JSON answer with what names the volume. */
void top_render_head(struct jsonw *w, const struct sample *s);
/*
 * Asks for all parts of the list of uncommitted blocks: s->runs, s->generation_seq. ret_again: a commit came in between.
 * 0 or -errno with *err.
 */
int top_runs(struct client *c, struct sample *s, bool *ret_again, struct failure *err) MUST_CHECK;

/*
 * Where two views can differ. runs: the blocks in which they do, if both are of one generation; else NULL. names: of ext2/3/4 as well.
 * -EOPNOTSUPP: all is to be compared. Errors of owners_ext_boxed.
 */
int touched_find(const struct view_mount *older, const struct view_mount *now,
		 const struct extents *runs, bool names, const struct diff_progress *progress,
		 struct touched *ret) MUST_CHECK;
/*
 * The same by inode, with the blocks that the daemon has for both. s: must live as long as *ret. false: all is to be compared,
 * which says the same.
 */
bool touched_between(struct client *c, const struct view_mount *older, const struct view_mount *now,
		     struct sample *s, struct touched *ret) MUST_CHECK;

void top_print_text(const struct picture *p);
int top_print_json(const struct picture *p) MUST_CHECK; /* prints a line; -ENOMEM */

#endif
