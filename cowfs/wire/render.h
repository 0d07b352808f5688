/* SPDX-License-Identifier: MIT */
/*
 * Writes the structs of a volume as JSON fields of the object that is open in w. Only this file
 * names them, for the socket, for the file in /run and for `cowctl --json`. Units are part of the
 * names.
 */
#ifndef COWFS_WIRE_RENDER_H
#define COWFS_WIRE_RENDER_H

#include "wire/jsonw.h"
#include "volume/volume.h"

void render_status(struct jsonw *w, const struct volume_status *s);
void render_result(struct jsonw *w, const struct volume_result *r);
/* The image of a view, as it was made. */
void render_image(struct jsonw *w, const struct volume_image *im);
void render_progress(struct jsonw *w, const struct volume_progress *p);
/* One part of the wear; `cowctl wear` joins the parts. */
void render_wear(struct jsonw *w, const struct volume_wear *v);
/* One part of the changes: block numbers and lengths in turn. */
void render_changes(struct jsonw *w, const struct volume_changes *v);
void render_ledger(struct jsonw *w, const struct wear_ledger *l);

const char *phase_name(enum commit_phase phase);
const char *cause_name(enum commit_cause cause);
const char *log_state_name(enum log_state state);

#endif
