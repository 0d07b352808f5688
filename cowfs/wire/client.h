/* SPDX-License-Identifier: MIT */
/*
 * The client's side of the control protocol: finds a volume, sends a request, waits for the
 * answer.
 */
#ifndef COWFS_WIRE_CLIENT_H
#define COWFS_WIRE_CLIENT_H

#include <json-c/json.h>

#include "wire/decode.h"
#include "wire/failure.h"
#include "wire/linebuf.h"
#include "wire/proto.h"
#include "wire/rundir.h"

struct mount_entry;

struct client {
	int fd;
	char name[RUNDIR_NAME_BYTES];
	struct linebuf in;
	int pass_fd; /* sent with the next request; -1: none */
	uint64_t
		until_ns; /* no answer is waited for any longer; 0: while the daemon shows that it lives */
	bool asked; /* the next request has been sent */
};

/*
 * Call it first in a program that starts early in a boot. json-c seeds its hash tables from the
 * kernel's random numbers, and its read of /dev/urandom waits until there are any: a second with
 * HZ=250 and no hardware source. The input here comes from our own daemon and from files of root,
 * so the hash needs no seed.
 */
void client_no_seed(void);

/*
 * which: a volume's name, its device, its loop device, /dev/cowfs/NAME or the folder where it is
 * mounted; NULL: the only running volume. 0, or
 * -errno with *err: EXIT_NOT_RUNNING no daemon runs (or it died), EXIT_USAGE several to choose
 * from, EXIT_FAILED no permission, or a socket that is neither root's nor ours.
 */
int client_open(struct client *ret, const char *which, struct failure *err) MUST_CHECK;
void client_close(struct client *c);

/* Called for each event line, several times a second. False: the answer is not waited for any longer, which is -ETIMEDOUT. */
typedef bool client_event(void *ctx, struct json_object *event);

/*
 * Returns the final answer, also if it is {"ok":false}; the caller puts it. NULL with *err: the
 * daemon has ended or does not answer. event may be NULL.
 */
struct json_object *client_call(struct client *c, const struct request *rq, client_event *event,
				void *ctx, struct failure *err);
/* The same of a request that is one word. */
struct json_object *client_ask(struct client *c, enum proto_command command, struct failure *err);
/* Waits until the daemon has closed the connection: it has ended, and has released its devices. */
void client_wait_gone(struct client *c);

/*
 * The status file of the daemon in /run: readable for every user, at most a second old. NULL with
 * *err.
 */
struct json_object *client_status_file(const char *which, struct failure *err);
/* The same from the daemon, if this user may ask it. The caller puts it; NULL: it does not answer. */
struct json_object *client_status(const char *which, struct failure *err);
#define CLIENT_VOLUMES 32
/* The same of n volumes, which are asked at once, so that one that does not answer keeps no other: ret[i] is NULL then, with err[i]. */
void client_statuses(char names[][RUNDIR_NAME_BYTES], size_t n,
		     struct json_object *ret[CLIENT_VOLUMES], struct failure err[CLIENT_VOLUMES]);
/*
 * The names of all running volumes, root last, as shutdown needs them. Returns their number, at
 * most CLIENT_VOLUMES.
 */
size_t client_volumes(char names[CLIENT_VOLUMES][RUNDIR_NAME_BYTES]);
/* The names of volumes whose daemon has died without removing its files. */
size_t client_dead_volumes(char names[CLIENT_VOLUMES][RUNDIR_NAME_BYTES]);
/* Of volumes that start or end, or whose start or end was cut. */
size_t client_volumes_without_status(char names[CLIENT_VOLUMES][RUNDIR_NAME_BYTES]);
/* The newest one that a daemon which died has reported. */
uint64_t client_left_generation(const char *name);
/* What root knows of a volume; left: of one whose daemon has died. */
void client_facts(const char *name, bool left, struct facts *ret);
/* The name of the running volume on this device or loop device, or mounted there; "" if none. */
void client_find_device(const char *path, char name[RUNDIR_NAME_BYTES]);
/* The volume that the mount shows, "" if none. *ret_composed: it is the root that is composed over the volume. */
void client_find_mount(int root_dirfd, const struct mount_entry *m, char name[RUNDIR_NAME_BYTES],
		       bool *ret_composed);
/* The pid of a volume's worker; 0: it does not run. */
pid_t client_worker(const char *name);
/*
 * The stopped process (SIGSTOP) of the volume: its worker, or the parent of a dead worker; 0:
 * none.
 */
pid_t client_stopped(const char *name);
/* Another running volume than `self` with this log_id, on a copy of the same card. "" if none. */
void client_find_twin(const char *self, const char *log_id, char name[RUNDIR_NAME_BYTES]);
/* True for the same path, or another name of the same block device or file. */
bool client_same_device(const char *a, const char *b);

#endif
