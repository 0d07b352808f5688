/* SPDX-License-Identifier: MIT */
/* cowctl top's table as text, at most 80 columns, and as JSON. */
#include "cli/top.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clean.h"
#include "base/parse.h"

enum { COLUMNS = 80 };

static const char *const kind_names[OWNER_KINDS] = {
	[OWNER_FILE] = "file",	       [OWNER_DIRECTORY] = "directory",
	[OWNER_DELETED] = "deleted",   [OWNER_SUPER] = "superblocks",
	[OWNER_BITMAPS] = "bitmaps",   [OWNER_INODES] = "inode-tables",
	[OWNER_JOURNAL] = "journal",   [OWNER_FREE] = "free",
	[OWNER_OTHER] = "other",       [OWNER_XATTRS] = "extended-attributes",
	[OWNER_METADATA] = "metadata",
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

/* A smaller value than before means that the volume was attached again. */
static uint64_t written_since(const struct picture *p)
{
	return p->now->written_bytes - min_u64(p->before->written_bytes, p->now->written_bytes);
}

/* ---- text ---- */

/* A path for people: relative to the mount point, only its end if it is too long. */
static void print_path(const char *mount, const char *path, size_t path_bytes, const char *more,
		       size_t columns)
{
	size_t n = strlen(mount) + path_bytes, from = 0, width;
	_cleanup_free_ char *text = malloc(n + 1);

	if (!text)
		return;
	snprintf(text, n + 1, "%s%.*s", mount, (int)path_bytes, path);
	width = clean_columns(clean_text(text));
	if (strlen(more) + 6 > columns)
		more = "";
	columns -= strlen(more);
	if (width > columns) { /* only whole characters */
		for (; width > columns - 3 || (text[from] & 0xc0) == 0x80; from++)
			width -= (text[from] & 0xc0) != 0x80;
		fputs("...", stdout);
	}
	printf("%s%s\n", text + from, more);
}

/* Names what has no path; uses one word if there is no room for more. */
static void print_kind(const struct picture *p, const struct owner *o, size_t columns)
{
	char text[64];

	if (o->kind == OWNER_OTHER && *p->unmapped)
		snprintf(text, sizeof(text), "(not known)");
	else if (kind_texts[o->kind])
		snprintf(text, sizeof(text), "%s", kind_texts[o->kind]);
	else
		snprintf(text, sizeof(text), "(%s, inode %llu)",
			 o->kind == OWNER_DELETED ? "deleted, open" : "no name found",
			 (unsigned long long)o->ino);
	if (strlen(text) > columns)
		snprintf(text, sizeof(text), "(%s)", kind_names[o->kind]);
	puts(text);
}

static void print_owner(const struct picture *p, const struct row *r)
{
	char more[48] = "";
	int used = printf("%11s %10s", FORMAT_SIZE(r->bytes),
			  with_commas((r->bytes + COW_BLK_BYTES - 1) / COW_BLK_BYTES));

	if (p->t->by_directory)
		used += printf(" %11s", r->o ? "" : FORMAT_SIZE(r->tree_bytes));
	if (p->before)
		used += printf(" %11s", FORMAT_SIZE(r->fresh_bytes));
	used += printf("  ");
	if (r->o && r->o->links > 1 && r->o->kind == OWNER_FILE)
		snprintf(more, sizeof(more), " (of %u names)", r->o->links);
	if (r->path)
		print_path(top_mount_prefix(p->now), r->path,
			   r->o ? strlen(r->path) : r->path_bytes, more, (size_t)(COLUMNS - used));
	else
		print_kind(p, r->o, (size_t)(COLUMNS - used));
}

static void print_head(const struct picture *p)
{
	const struct table *t = &p->table;
	const char *mount = CLEAN(json_fact(p->now->status, FACT_MOUNTPOINT));

	char amount[120];
	int used = printf("%s%s%s:", json_text(p->now->status, "name"), *mount ? " on " : "",
			  mount);

	snprintf(amount, sizeof(amount), "%s not on the card, %s block%s, %s file%s",
		 FORMAT_SIZE(blk_to_bytes(p->now->runs.blks)), with_commas(p->now->runs.blks),
		 plural(p->now->runs.blks), with_commas(t->files), plural(t->files));
	printf("%c%s\n", used + 1 + (int)strlen(amount) > COLUMNS ? '\n' : ' ', amount);
	if (p->before)
		printf("%.1f s: %s written, %s of it to blocks that were clean before\n",
		       (double)(p->now->time_ns - p->before->time_ns) / 1e9,
		       FORMAT_SIZE(written_since(p)), FORMAT_SIZE(blk_to_bytes(p->fresh.blks)));
	if (*p->unmapped)
		printf("No files: %s.\n", p->unmapped);
	else if (!p->owners.complete)
		printf("Not all files were examined: there are more than %s.\n",
		       with_commas(p->owners.looked_at));
	putchar('\n');
	printf("%11s %10s%s%s  %s\n", "UNCOMMITTED", "BLOCKS",
	       p->t->by_directory ? "   AND BELOW" : "", p->before ? "         NEW" : "",
	       p->t->by_directory ? "DIRECTORY" : "FILE");
}

void top_print_text(const struct picture *p)
{
	const struct table *t = &p->table;
	uint64_t bytes = 0;

	print_head(p);
	for (size_t i = 0; i < t->shown; i++) {
		print_owner(p, &t->row[i]);
		bytes += t->row[i].bytes;
	}
	if (t->shown < t->n)
		printf("%11s %10s  in %s more rows (-n)\n", FORMAT_SIZE(t->bytes - bytes), "",
		       with_commas(t->n - t->shown));
}

/* ---- JSON ---- */

static void render_row(struct jsonw *w, const struct picture *p, const struct row *r, char *path,
		       size_t path_size)
{
	jsonw_object(w, NULL);
	jsonw_str(w, "kind", r->o ? kind_names[r->o->kind] : "directory");
	if (r->path) {
		snprintf(path, path_size, "%s%.*s", top_mount_prefix(p->now),
			 (int)(r->o ? strlen(r->path) : r->path_bytes), r->path);
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
	jsonw_end(w);
}

static void render_head(struct jsonw *w, const struct picture *p)
{
	top_render_head(w, p->now);
	jsonw_u64(w, "newest_generation", p->now->generation_seq);
	jsonw_u64(w, "uncommitted_bytes", blk_to_bytes(p->now->runs.blks));
	jsonw_u64(w, "uncommitted_blocks", p->now->runs.blks);
	if (p->before) {
		jsonw_seconds(w, "interval_seconds", p->now->time_ns - p->before->time_ns);
		jsonw_u64(w, "written_bytes", written_since(p));
		jsonw_u64(w, "new_bytes", blk_to_bytes(p->fresh.blks));
	}
	jsonw_str(w, "by", p->t->by_directory ? "directory" : "file");
	jsonw_bool(w, "complete", p->owners.complete);
	jsonw_str(w, "no_files_because", p->unmapped);
	jsonw_u64(w, "files", p->table.files);
	jsonw_u64(w, "files_looked_at", p->owners.looked_at);
	jsonw_u64(w, "files_unreadable", p->owners.unreadable);
	jsonw_seconds(w, "mapping_seconds", p->gather_ns);
	jsonw_u64(w, "rows_left_out", p->table.n - p->table.shown);
}

int top_print_json(const struct picture *p)
{
	size_t room = 64 * KIB, longest = 0, mount = strlen(top_mount_prefix(p->now));
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
