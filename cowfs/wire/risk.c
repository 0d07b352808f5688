/* SPDX-License-Identifier: MIT */
#include "wire/risk.h"

#include <string.h>

#include "base/clean.h"
#include "wire/json.h"
#include "wire/rundir.h"

void risk_print(FILE *f, const char *who, struct json_object *s, bool ends)
{
	struct json_object *held = json_object_object_get(s, "held");
	unsigned long long held_generation = json_u64(held, "generation"),
			   imported = json_u64(s, "replaced_by");
	const char *alarm = json_text(s, "alarm"),
		   *start = strcmp(json_text(s, "name"), ROOT_NAME) ? "attach" : "boot";

	if (json_true(held, "undo_pending"))
		fprintf(f,
			"%s: UNDO PENDING: the next %s goes back to generation %llu, and all later changes are lost. To keep "
			"them: cowctl undo --cancel, or cowctl accept\n",
			who, start, held_generation);
	else if (held && ends)
		fprintf(f,
			"%s: generation %llu is held, so the card is no plain file system: do not mount it without cowfs. "
			"cowctl accept ends that\n",
			who, held_generation);
	if (imported)
		fprintf(f,
			"%s: the next %s has generation %llu, which was imported, and what is mounted now is lost\n",
			who, start, imported);
	else if (json_true(s, "discard_armed"))
		fprintf(f,
			"%s: uncommitted changes will be DISCARDED at the next detach or shutdown (cowctl discard)\n",
			who);
	if (ends && *alarm)
		fprintf(f, "%s: ALARM: %s\n", who, CLEAN(alarm));
}
