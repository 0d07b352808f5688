/* SPDX-License-Identifier: MIT */
/* What of a volume will be lost or is at risk, in the same words wherever it is said. */
#ifndef COWFS_WIRE_RISK_H
#define COWFS_WIRE_RISK_H

#include <json-c/json.h>
#include <stdio.h>

#include "base/util.h"

/*
 * Prints a line for each, which begins with who. status: of a daemon, or NULL. ends: the volume is about to be detached, so
 * also what the card is not then, and an alarm that nobody will see any more.
 */
void risk_print(FILE *f, const char *who, struct json_object *status, bool ends);

#endif
