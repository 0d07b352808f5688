/* SPDX-License-Identifier: MIT */
/*
 * The control protocol: lines of JSON over a stream socket.
 *
 *	client	{"version":1,"command":"commit","checkpoint":true}
 *	daemon	{"event":"progress","phase":"log",...}		any number, while a job runs
 *	daemon	{"ok":true,...}					one, the last
 *	   or	{"ok":false,"error":"a sentence","code":"EFBIG","exit":1,...}
 *
 * Unknown fields are ignored, so that newer clients can talk to older daemons; an unknown
 * command, a wrong type or another protocol version is an error. One request at a time is
 * served on a connection, in order.
 */
#ifndef COWFS_WIRE_PROTO_H
#define COWFS_WIRE_PROTO_H

#include "wire/jsonw.h"

#define PROTO_VERSION 1u
#define PROTO_LINE_BYTES (64 * KIB) /* longest request or answer, line end included */
#define PROTO_DEPTH 8u		    /* of nested objects and arrays in a request */

/* Exit codes of all programs of this project, and "exit" in an answer. */
enum exit_code {
	EXIT_OK = 0,
	EXIT_FAILED = 1,
	EXIT_USAGE = 2,
	EXIT_DEGRADED = 3,
	EXIT_NOT_RUNNING = 4,
	EXIT_AWAY = 5 /* the card is: nothing that was committed is lost */
};

enum proto_command {
	COMMAND_NONE = 0,
	COMMAND_STATUS,
	COMMAND_COMMIT,
	COMMAND_DISCARD,
	COMMAND_DETACH,
	COMMAND_INHIBIT,
	COMMAND_UNINHIBIT,
	COMMAND_WEAR,
	COMMAND_CHANGES,
	COMMAND_VIEW,
	COMMAND_TRIM,
	COMMAND_ACCEPT,
	COMMAND_UNDO,
	COMMAND_RENEW
};

struct request {
	enum proto_command command;
	bool dry_run, checkpoint, force, no_wait; /* commit */
	bool hold;				  /* commit: and hold the generation */
	uint64_t trial;				  /* commit: on trial for so many boots */
	/* view, commit, with scratch: of an import. The generation's time, seconds; of a view any number */
	uint64_t replaces;
	bool held;	  /* view: of that generation */
	bool cancel;	  /* discard, undo: take the order back */
	bool on_trial;	  /* accept: of a trial only, and of the initramfs */
	bool discard;	  /* detach: uncommitted changes */
	uint64_t seconds; /* inhibit: duration; 0: the default */
	/* commit: skip it while inhibited, or without need */
	bool timer;
	bool shutdown; /* commit: the last one; skip changes that are to be discarded */
	/* commit: not begun if it would take longer than this from now on; 0: always begun */
	uint64_t deadline_ms;
	/* wear: first item of the table; changes: first block; renew: the block */
	uint64_t first;
	/* view: the scratch image, which can be written to; commit: this image alone */
	bool scratch;
	bool when_unmounted; /* detach: not now, but umount.cowfs does it when the last mount ends */
	bool now; /* view: of the volume as it is now; /dev/fuse of a mount is passed with the line */
};

/*
 * Parses a request. Pure, allocates nothing, accepts any bytes. len_bytes is without the line end.
 * -EINVAL not JSON, wrong type or no command; -E2BIG too deep or too long; -EPROTONOSUPPORT
 * another version; -EOPNOTSUPP unknown command. why gets a sentence. Names are compared as
 * written: a name in \u escapes is another name.
 */
int request_parse(const char *line, size_t len_bytes, struct request *ret, char *why,
		  size_t why_bytes) MUST_CHECK;
/* Writes the line of a request. Returns its length, 0 if buf is too small. */
size_t request_render(const struct request *rq, char *buf, size_t size_bytes);
/*
 * Every document of JSON has it as "schema". It changes when a field changes its meaning, not when
 * fields are added. An error has "error", "code" (the name of the errno) and "exit" as well.
 */
#define JSON_SCHEMA 1
/* Opens the answer. The caller adds fields and finishes it. error is -errno. */
void answer_ok(struct jsonw *w);
void answer_error(struct jsonw *w, int error, enum exit_code exit, const char *why);

#endif
