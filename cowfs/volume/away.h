/* SPDX-License-Identifier: MIT */
/* A card that drops off the bus and comes back: docs/design/away.md. Private to volume/. */
#ifndef COWFS_VOLUME_AWAY_H
#define COWFS_VOLUME_AWAY_H

#include "base/util.h"

struct volume;
struct volume_away;
struct volume_request;
struct volume_result;

#define AWAY_LOOK_NS 500000000ull

/* Any thread: is a card away? */
bool away_any(const struct volume *v);
/* And not given up? */
bool away_waits(const struct volume *v);
/* At the attach: what the broker needs to know a card again. */
void away_know(const struct volume *v);
/* Monitor thread, about once a second: looks at a card that nobody uses, and wakes the commit thread. */
void away_look(struct volume *v);
/* Commit thread. Is there something to look for, or to do again? */
bool away_pending(const struct volume *v);
/* Between jobs and each AWAY_LOOK_NS while away_pending: looks for the card, and goes on with it. */
void away_search(struct volume *v);
/* A job has failed because of it. */
void away_interrupts(struct volume *v, const struct volume_request *rq, struct volume_result *res);
void away_status(struct volume *v, struct volume_away *ret);

#endif
