/* SPDX-License-Identifier: MIT */
/*
 * libinih reads the lines, but it does not report their numbers and cuts section names at 50
 * bytes. It sees neither an empty section nor a repeated one. So the reader that feeds it counts
 * lines and handles the headings. It also strips indentation, because libinih treats an indented
 * line as a continuation.
 */
#include "config/conf.h"

#include <errno.h>
#include <ini.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <string.h>

#include "base/msg.h"
#include "base/parse.h"
#include "base/path.h"
#include "wire/client.h"
#include "wire/rundir.h"

#define CONF_DEFAULT_PATH "/etc/cowfs/cowfs.conf"
#define DEFAULT_SECTION "default"
#define BYTE_ORDER_MARK "\xef\xbb\xbf"

struct section {
	char *name;
	unsigned line;
	char *text[VOLOPTS], *root_text[ROOTOPTS];
	struct section *next;
};

struct conf {
	char *path;
	struct section *first;
};

struct parser {
	FILE *f;
	struct conf *conf;
	struct section *section; /* NULL before the first heading */
	unsigned line;
	char *buf;
	size_t buf_bytes;
	int error;  /* the first error; the rest is not checked */
	bool tells; /* of keys that were removed */
	char *why;
	size_t why_bytes;
};

static const struct rootopt_entry {
	const char *name, *values;
	enum { ROOTOPT_T_CHOICE, ROOTOPT_T_TIME, ROOTOPT_T_PATHS, ROOTOPT_T_LOWER } type;
	/* VOLUME: not in [default] */
	enum { ROOTOPT_ROOT, ROOTOPT_VOLUME, ROOTOPT_ANY } where;
	const char *def, *help;
} rootopts[] = {
#define AS_ENTRY(id, name, values, type, where, def, help)                                         \
	[ROOTOPT_##id] = { name, values, ROOTOPT_T_##type, ROOTOPT_##where, def, help },
	ROOTOPT_TABLE(AS_ENTRY)
};

enum rootopt rootopt_find(const char *name)
{
	unsigned id = 0;

	while (id < ROOTOPTS && strcmp(rootopts[id].name, name))
		id++;
	return (enum rootopt)id;
}

const char *rootopt_name(enum rootopt id)
{
	return rootopts[id].name;
}

const char *rootopt_help(enum rootopt id)
{
	return rootopts[id].help;
}

const char *conf_path(void)
{
	const char *path = secure_getenv("COWFS_CONF");

	return path && *path ? path : CONF_DEFAULT_PATH;
}

static PRINTF(2, 3) void bad(struct parser *p, const char *fmt, ...)
{
	int n;
	va_list ap;

	if (p->error)
		return;
	p->error = -EINVAL;
	n = snprintf(p->why, p->why_bytes, "%s:%u: ", p->conf->path, p->line);
	if (n < 0 || (size_t)n >= p->why_bytes)
		return;
	va_start(ap, fmt);
	vsnprintf(p->why + n, p->why_bytes - (size_t)n, fmt, ap);
	va_end(ap);
	for (char *c = p->why + n; *c; c++) /* the text may contain any character */
		if (*c < ' ' || *c > '~')
			*c = '?';
}

/* ---- sections ---- */

static struct section *find_section(const struct conf *c, const char *name)
{
	struct section *s = c->first;

	while (s && strcmp(s->name, name))
		s = s->next;
	return s;
}

static void add_section(struct parser *p, const char *name)
{
	struct section *s = find_section(p->conf, name);

	if (s) {
		bad(p, "section [%s] is already in line %u", name, s->line);
		return;
	}
	if (name[0] != '/' && !rundir_name_valid(name)) {
		bad(p, "[%s] is neither the name of a volume nor the path of a device", name);
		return;
	}
	s = calloc(1, sizeof(*s));
	if (!s || !(s->name = strdup(name))) {
		free(s);
		p->error = -ENOMEM;
		return;
	}
	s->line = p->line;
	s->next = p->conf->first;
	p->conf->first = p->section = s;
}

static bool is_comment(char c)
{
	return !c || c == ';' || c == '#';
}

/* "[NAME]", optionally followed by a comment */
static void take_heading(struct parser *p, char *line)
{
	char *end = strchr(line, ']');

	if (!end || !is_comment(end[1 + strspn(end + 1, " \t")])) {
		bad(p, "a heading is [NAME]");
		return;
	}
	*end = '\0';
	add_section(p, line + 1);
	*end = ']';
}

/* ---- lines ---- */

/*
 * The ini_reader: one line, without indentation and line end. libinih would take a line that fills
 * str for the first part of a longer one.
 */
static char *next_line(char *str, int size, void *ctx)
{
	struct parser *p = ctx;
	ssize_t n = p->error ? -1 : getline(&p->buf, &p->buf_bytes, p->f);
	char *text;

	if (n < 0) {
		if (!p->error && ferror(p->f))
			p->error = -errno;
		return NULL;
	}
	p->line++;
	if (strlen(p->buf) != (size_t)n) {
		bad(p, "a zero byte: not a text file");
		return NULL;
	}
	while (n && strchr(" \t\r\n", p->buf[n - 1]))
		p->buf[--n] = '\0';
	text = p->buf;
	if (p->line == 1 && !strncmp(text, BYTE_ORDER_MARK, strlen(BYTE_ORDER_MARK)))
		text += strlen(BYTE_ORDER_MARK);
	text += strspn(text, " \t");
	if (strlen(text) + 1 >= (size_t)size) {
		bad(p, "the line is longer than %d bytes", size - 2);
		return NULL;
	}
	if (*text == '[')
		take_heading(p, text);
	return strcpy(str, text);
}

static void take_option(struct parser *p, enum volopt id, const char *value)
{
	char **slot = &p->section->text[id], why[160];
	const char *key = volopt_name(id);

	if (*slot)
		bad(p, "%s is given twice in [%s]", key, p->section->name);
	else if (!strcmp(p->section->name, DEFAULT_SECTION) && !volopt_allowed(id, VOLOPT_DEFAULT))
		bad(p, "%s belongs to one volume, not to [" DEFAULT_SECTION "]", key);
	else if (id == VOLOPT_NAME && p->section->name[0] != '/')
		bad(p, "[%s] is named by its heading already", p->section->name);
	else if (volopt_check(id, value, why, sizeof(why)) < 0)
		bad(p, "%s = %s %s", key, value, why);
	else if (volopt_type(id) == VOLOPT_T_DEVICE && value[0] != '/')
		bad(p, "%s = %s does not begin with /", key, value);
	else if (!(*slot = strdup(value)))
		p->error = -ENOMEM;
}

/* True for an absolute, normalized path that a shell or a unit file takes literally. */
static bool plain_path(const char *path, size_t len)
{
	static const char allowed[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+";
	char text[PATH_MAX];
	bool plain = len > 1 && len < sizeof(text) - 1 && path[0] == '/' && path[len - 1] != '/';

	if (!plain)
		return false;
	snprintf(text, sizeof(text), "%.*s/", (int)len, path);
	return strspn(text, allowed) == len + 1 && !strstr(text, "//") && !strstr(text, "/./") &&
	       !strstr(text, "/../");
}

/* DEVICE[:/FILE]: a path or a tag, and a path on the file system of this device. Empty: none. */
static bool lower_is_valid(const char *value)
{
	const char *file = strstr(value, ":/");
	size_t len = file ? (size_t)(file - value) : strlen(value);
	const char *equals = memchr(value, '=', len);

	if (file && !plain_path(file + 1, strlen(file + 1)))
		return false;
	return !*value		 ? true
	       : value[0] == '/' ? plain_path(value, len)
				 : equals && equals > value && equals + 1 < value + len;
}

const char *rootopt_check(enum rootopt id, const char *value)
{
	const struct rootopt_entry *e = &rootopts[id];
	uint64_t ns;

	switch (e->type) {
	case ROOTOPT_T_CHOICE:
		return volopt_choice(e->values, value) < 0 ? e->values : NULL;
	case ROOTOPT_T_TIME:
		return parse_duration_ns(value, &ns) < 0 ? "a time such as 30m or 2h" : NULL;
	case ROOTOPT_T_LOWER:
		return lower_is_valid(value) ? NULL : "DEVICE[:/FILE] with plain absolute paths";
	case ROOTOPT_T_PATHS:
		for (size_t n; *(value += strspn(value, " \t")); value += n) {
			n = strcspn(value, " \t");
			if (!plain_path(value, n))
				return "a list of plain absolute paths";
		}
	}
	return NULL;
}

static void take_root_option(struct parser *p, enum rootopt id, const char *value)
{
	const struct rootopt_entry *e = &rootopts[id];
	char **slot = &p->section->root_text[id];
	const char *name = p->section->name, *want = rootopt_check(id, value);

	if (*slot)
		bad(p, "%s is given twice in [%s]", e->name, name);
	else if (e->where == ROOTOPT_ROOT && strcmp(name, ROOT_NAME) && name[0] != '/')
		bad(p, "%s belongs to [" ROOT_NAME "]", e->name);
	else if (e->where == ROOTOPT_VOLUME && !strcmp(name, DEFAULT_SECTION))
		bad(p, "%s belongs to one volume, not to [" DEFAULT_SECTION "]", e->name);
	else if (want)
		bad(p, "%s = %s is not %s%s", e->name, value,
		    e->type == ROOTOPT_T_CHOICE ? "one of " : "", want);
	else if (!(*slot = strdup(value)))
		p->error = -ENOMEM;
}

/* The ini_handler. Always reports success: bad() keeps errors with their line. */
static int take_pair(void *ctx, const char *section, const char *key, const char *value)
{
	struct parser *p = ctx;
	const char *removed = volopt_removed(key, strlen(key));
	enum volopt id = volopt_find(key, strlen(key));

	(void)section; /* cut */
	if (p->error)
		return 1;
	if (!p->section)
		bad(p, "%s must follow a [section]", key);
	else if (removed && p->tells)
		msg(MSG_WARN, "%s:%u: %s %s; remove the line", p->conf->path, p->line, key,
		    removed);
	else if (removed)
		;
	else if (id == VOLOPTS && rootopt_find(key) < ROOTOPTS)
		take_root_option(p, rootopt_find(key), value);
	else if (id == VOLOPTS)
		bad(p, "unknown key %s", key);
	else
		take_option(p, id, value);
	return 1;
}

static bool is_root(const struct section *s)
{
	const char *name = s->text[VOLOPT_NAME];

	return !strcmp(s->name, ROOT_NAME) || (name && !strcmp(name, ROOT_NAME));
}

/* A section headed by a path shows only at its end which volume it belongs to. */
static void check_root_keys(struct parser *p, const struct section *s)
{
	for (size_t id = 0; id < ROOTOPTS; id++)
		if (s->root_text[id] && rootopts[id].where == ROOTOPT_ROOT && !is_root(s)) {
			p->line = s->line;
			bad(p, "%s belongs to the volume " ROOT_NAME ", and [%s] is not",
			    rootopts[id].name, s->name);
		}
}

static void check_keep(struct parser *p, const struct section *s)
{
	const char *paths = s->root_text[ROOTOPT_KEEP];

	if (!s->root_text[ROOTOPT_KEEP_INTERVAL] || (paths && *paths))
		return;
	p->line = s->line;
	bad(p, "keep-interval in [%s] needs keep = PATH...", s->name);
}

static void check_compose(struct parser *p, const struct section *s)
{
	const char *compose = s->root_text[ROOTOPT_COMPOSE], *lower = s->root_text[ROOTOPT_LOWER];

	if (!compose || strcmp(compose, "overlay"))
		return;
	p->line = s->line;
	if (!lower || !*lower)
		bad(p, "compose = overlay in [%s] needs lower = DEVICE[:/FILE]", s->name);
}

/* ---- the file ---- */

int conf_parse(FILE *f, const char *path, bool tells, struct conf **ret, char *why,
	       size_t why_bytes)
{
	struct conf *c = calloc(1, sizeof(*c));
	struct parser p = { .f = f, .conf = c, .why = why, .why_bytes = why_bytes, .tells = tells };
	int line;

	if (!c || !(c->path = strdup(path))) {
		free(c);
		return -ENOMEM;
	}
	line = ini_parse_stream(next_line, &p, take_pair, &p);
	if (line > 0 && (!p.error || (unsigned)line < p.line)) {
		p.error = 0;
		p.line = (unsigned)line;
		bad(&p, "neither [SECTION] nor KEY = VALUE");
	}
	if (!p.error && line < 0)
		p.error = -ENOMEM;
	for (const struct section *s = c->first; !p.error && s; s = s->next) {
		check_root_keys(&p, s);
		check_keep(&p, s);
		check_compose(&p, s);
	}
	free(p.buf);
	if (p.error) {
		conf_free(c);
		if (p.error != -EINVAL)
			snprintf(why, why_bytes, "%s: %s", path, strerrordesc_np(-p.error));
		return p.error;
	}
	*ret = c;
	return 0;
}

static int load(bool tells, struct conf **ret, char *why, size_t why_bytes)
{
	const char *path = conf_path();
	_cleanup_close_ int fd = path_open_ours(path);
	FILE *f;
	int e;

	/* which all may write, and nobody can put anything into: a boot whose configuration is bad goes on with it */
	if (fd == -ENOENT || (fd == -EPERM && !strcmp(path, "/dev/null")))
		fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	f = fd < 0 ? NULL : fdopen(fd, "r");
	if (!f) {
		e = fd < 0 ? fd : -errno;
		snprintf(why, why_bytes, "%s: %s", path,
			 e == -EPERM ? PATH_NOT_OURS : strerrordesc_np(-e));
		return e;
	}
	steal_fd(&fd);
	e = conf_parse(f, path, tells, ret, why, why_bytes);
	fclose(f);
	return e;
}

int conf_load(struct conf **ret, char *why, size_t why_bytes)
{
	return load(false, ret, why, why_bytes);
}

int conf_load_and_tell(struct conf **ret, char *why, size_t why_bytes)
{
	static bool told;
	bool tells = !told;

	told = true;
	return load(tells, ret, why, why_bytes);
}

void conf_free(struct conf *c)
{
	while (c && c->first) {
		struct section *s = c->first;

		c->first = s->next;
		for (size_t id = 0; id < VOLOPTS; id++)
			free(s->text[id]);
		for (size_t id = 0; id < ROOTOPTS; id++)
			free(s->root_text[id]);
		free(s->name);
		free(s);
	}
	if (c)
		free(c->path);
	free(c);
}

/* ---- a volume ---- */

static void fill(struct volopts *o, const struct section *s)
{
	struct volopts below = { 0 };

	if (!s)
		return;
	for (size_t id = 0; id < VOLOPTS; id++)
		below.text[id] = s->text[id];
	volopts_fill(o, &below);
}

/* The next section headed by the device, starting at s. */
static const struct section *of_device(const struct section *s, const char *device)
{
	while (s && !(s->name[0] == '/' && client_same_device(s->name, device)))
		s = s->next;
	return s;
}

int conf_volume(const struct conf *c, const char *device, struct volopts *o, char *why,
		size_t why_bytes)
{
	const struct section *by_device = of_device(c->first, device), *other;
	const char *slash = strrchr(device, '/'), *name;

	fill(o, by_device);
	name = o->text[VOLOPT_NAME] ? o->text[VOLOPT_NAME] : slash ? slash + 1 : device;
	other = strcmp(name, DEFAULT_SECTION) ? find_section(c, name) : NULL;
	if (by_device && !other)
		other = of_device(by_device->next, device);
	else if (!by_device)
		fill(o, other);
	if (by_device && other) {
		snprintf(why, why_bytes,
			 "%s:%u: [%s] is the same volume as [%s] in line %u: merge them", c->path,
			 other->line, other->name, by_device->name, by_device->line);
		return -EINVAL;
	}
	fill(o, find_section(c, DEFAULT_SECTION));
	return 0;
}

/* ---- the root ---- */

static const struct section *root_section(const struct conf *c)
{
	const struct section *s = c->first;

	while (s && !is_root(s))
		s = s->next;
	return s;
}

bool conf_has_root(const struct conf *c)
{
	return root_section(c) != NULL;
}

const char *conf_root_text(const struct conf *c, enum rootopt id)
{
	return conf_text(c, ROOT_NAME, id);
}

void conf_root_options(const struct conf *c, struct volopts *o)
{
	fill(o, root_section(c));
	fill(o, find_section(c, DEFAULT_SECTION));
}

/* ---- by name ---- */

/*
 * The volume name of a section: its heading, or, if headed by a device path, its name key or the
 * name of the device.
 */
static const char *volume_of(const struct section *s)
{
	const char *slash = strrchr(s->name, '/');

	return s->text[VOLOPT_NAME] ? s->text[VOLOPT_NAME] : slash ? slash + 1 : s->name;
}

static const struct section *of_name(const struct conf *c, const char *volume)
{
	for (const struct section *s = c->first; s; s = s->next)
		if (!strcmp(volume_of(s), volume) && strcmp(s->name, DEFAULT_SECTION))
			return s;
	return NULL;
}

void conf_each_volume(const struct conf *c, void (*each)(void *ctx, const char *name), void *ctx)
{
	for (const struct section *s = c->first; s; s = s->next)
		if (strcmp(s->name, DEFAULT_SECTION))
			each(ctx, volume_of(s));
}

bool conf_has_volume(const struct conf *c, const char *volume)
{
	return of_name(c, volume) != NULL;
}

const char *conf_text(const struct conf *c, const char *volume, enum rootopt id)
{
	const struct section *s = of_name(c, volume), *def = find_section(c, DEFAULT_SECTION);

	if (s && s->root_text[id])
		return s->root_text[id];
	return def && def->root_text[id] ? def->root_text[id] : rootopts[id].def;
}

const char *conf_option(const struct conf *c, const char *volume, enum volopt id)
{
	const struct section *s = of_name(c, volume), *def = find_section(c, DEFAULT_SECTION);

	if (s && s->text[id])
		return s->text[id];
	return def ? def->text[id] : NULL;
}
