/* SPDX-License-Identifier: MIT */
/* cowctl wear --html: a page with charts. */
#include "cli/cmd.h"

#include <errno.h>
#include <stdlib.h>

#include "wear/report.h"

int wear_html(const struct options *o, struct json_object *wear)
{
	_cleanup_free_ char *page = NULL;
	size_t bytes;

	page = report_page(wear, &bytes);
	if (!page)
		return cmd_fail(o, EXIT_FAILED, -ENOMEM, "no memory");
	return cmd_write_file(o, "--html", o->value[OPT_HTML], page, bytes);
}
