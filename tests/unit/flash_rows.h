/* SPDX-License-Identifier: MIT */
/*
 * Published figures of real devices, and the required accuracy of the model. Typed from the
 * sources, not from lab/sim/profiles.json, so that an error in either shows. CALIBRATION: the
 * profile was made from this number; PREDICTION: it was not; SHOWN: printed, not tested (see why).
 */
#ifndef TESTS_UNIT_FLASH_ROWS_H
#define TESTS_UNIT_FLASH_ROWS_H

#include "test.h"

enum row_kind { CALIBRATION, PREDICTION, SHOWN };

enum row_what {
	LINEAR_WRITE, /* at: request in KiB; MB/s */
	LINEAR_READ,  /* the same */
	SYNC_WRITE,   /* a new file of 512 MiB, each 4 KiB synced to the card; per second */
	SYNC_REWRITE,
	RANDOM_READ,  /* 4 KiB over 512 MiB; per second */
	RANDOM_SYNC,  /* writes of 4 KiB over 512 MiB, each synced to the card; per second */
	RANDOM_WRITE, /* writes of 4 KiB over the whole device; per second */
	MIX,	      /* at: writes in percent, 4 KiB over the whole device; per second */
	DISK_READ,    /* random reads of 4 KiB over the whole device; per second */
	/* at: block in KiB; the profile's open_units + 1 are written in turn; MB/s */
	OPEN_UNITS,
	RANDOM_SIZE, /* at: KiB of a write, over the whole device, aligned to its size; MB/s */
	/* at: 1; writes of 4 KiB anywhere, appended by the host; per second, no caller waits for
	 * another */
	APPEND,
	ARRAY_READ_1, /* 4 KiB, one thread; per second */
	ARRAY_READ,   /* 4 KiB, many threads; per second */
	ARRAY_LINEAR, /* writes of whole stripes; MB/s */
	ARRAY_LINEAR_READ,
	ARRAY_WRITE, /* 4 KiB, many threads; per second */
};

struct row {
	enum row_kind kind;
	enum row_what what;
	const char *profile;
	unsigned at;
	double published, within_percent;
	const char *why;
};

/* Both tables of a card: 4 to 1024 KiB */
struct linear_rows {
	const char *profile;
	double write[9], read[9];
};

static const struct linear_rows linear_rows[] = {
	{ "sandisk-extreme-pro-8g",
	  { 1.7, 3.3, 5.6, 7.0, 8.1, 8.7, 8.9, 9.2, 9.6 },
	  { 3.3, 4.8, 6.0, 7.0, 7.6, 8.0, 8.1, 8.3, 8.5 } },
	{ "sandisk-extreme-usb-16g-usb2",
	  { 7.2, 12.1, 17.5, 20.7, 23.9, 10.6, 24.0, 23.9, 24.0 },
	  { 7.5, 11.9, 17.4, 20.8, 23.3, 23.4, 24.4, 25.0, 25.5 } },
	{ "sandisk-extreme-usb-16g-usb3",
	  { 8.9, 41.4, 52.5, 57.0, 57.1, 11.8, 26.1, 50.1, 56.2 },
	  { 20.1, 33.5, 54.2, 79.3, 109, 106, 127, 140, 141 } },
	{ "lexar-300x-8g",
	  { 3.8, 8.0, 19.5, 28.3, 37.0, 43.4, 44.5, 44.7, 45.0 },
	  { 11.7, 20.3, 31.0, 40.7, 48.9, 54.3, 55.3, 55.9, 56.2 } },
	{ "sandisk-ultra-4g",
	  { 2.8, 5.0, 12.6, 24.4, 26.3, 28.1, 27.7, 28.2, 27.3 },
	  { 6.4, 10.6, 15.8, 21.0, 25.0, 27.6, 27.7, 27.7, 27.8 } },
	{ "kingston-266x-32g",
	  { 2.1, 4.1, 7.5, 15.6, 35.7, 36.9, 38.1, 38.3, 38.2 },
	  { 12.4, 18.5, 24.5, 29.5, 55.7, 64.9, 69.7, 73.1, 73.6 } },
};

#define IOZONE(id, w, rw, rr, random)                                                              \
	{ CALIBRATION, SYNC_WRITE, id, 0, w, 10, "" },                                             \
		{ CALIBRATION, SYNC_REWRITE, id, 0, rw, 10, "" },                                  \
		{ CALIBRATION, RANDOM_READ, id, 0, rr, 10, "" }, random
#define RANDOM(id, n)                                                                              \
	{                                                                                          \
		CALIBRATION, RANDOM_SYNC, id, 0, n, 10, ""                                         \
	}
#define ARRAY(kind, what, id, n, within, why)                                                      \
	{                                                                                          \
		kind, what, "samsung-" id, 0, n, within, why                                       \
	}
#define MIXED(percent, n)                                                                          \
	{                                                                                          \
		percent == 0 || percent == 100 ? CALIBRATION : PREDICTION, MIX,                    \
			"sandisk-sata5000-32g", percent, n, 3, ""                                  \
	}

static const struct row rows[] = {
	IOZONE("sandisk-extreme-pro-8g", 162, 606, 1172, RANDOM("sandisk-extreme-pro-8g", 133)),
	IOZONE("sandisk-extreme-usb-16g-usb2", 699, 1496, 1447,
	       RANDOM("sandisk-extreme-usb-16g-usb2", 558)),
	IOZONE("sandisk-extreme-usb-16g-usb3", 943, 2451, 2612,
	       RANDOM("sandisk-extreme-usb-16g-usb3", 566)),
	IOZONE("sandisk-extreme-usb-16g-other", 462, 1186, 1181,
	       RANDOM("sandisk-extreme-usb-16g-other", 570)),
	IOZONE("lexar-300x-8g", 63, 62, 2594, RANDOM("lexar-300x-8g", 17.5)),
	IOZONE("sandisk-ultra-4g", 73, 66, 1753, RANDOM("sandisk-ultra-4g", 49)),
	IOZONE("kingston-266x-32g", 71, 62, 1335,
	       ((struct row){ CALIBRATION, RANDOM_SYNC, "kingston-266x-32g", 0, 1, 50,
			      "printed as the integer 1" })),
	{ CALIBRATION, RANDOM_WRITE, "transcend-ts8gcf266", 0, 47, 3, "" },
	{ CALIBRATION, RANDOM_WRITE, "samsung-mcaqe32g5app", 0, 24, 3, "" },
	{ CALIBRATION, RANDOM_WRITE, "sandisk-sata5000-32g", 0, 13, 3, "" },

	MIXED(0, 5400),
	MIXED(5, 252),
	MIXED(10, 130),
	MIXED(20, 65),
	MIXED(50, 26),
	MIXED(100, 13),

	{ CALIBRATION, DISK_READ, "hdd-5400-laptop", 0, 90, 10, "" },
	{ PREDICTION, DISK_READ, "hdd-st936751ss-15k", 0, 204, 10,
	  "what the ratios of the mix table imply" },

	/* flashbench --open-au, one unit more than the card keeps open */
	{ CALIBRATION, OPEN_UNITS, "x-flashbench-readme", 4096, 7.75, 12, "" },
	{ PREDICTION, OPEN_UNITS, "x-flashbench-readme", 2048, 5.03, 12, "" },
	{ PREDICTION, OPEN_UNITS, "x-flashbench-readme", 1024, 3.24, 12, "" },
	{ PREDICTION, OPEN_UNITS, "x-flashbench-readme", 512, 1.76, 12, "" },
	{ CALIBRATION, OPEN_UNITS, "x-flashbench-readme", 256, 0.912, 12, "" },
	{ CALIBRATION, OPEN_UNITS, "x-kingston-sa04g-4g", 2048, 4.49, 12, "" },
	{ PREDICTION, OPEN_UNITS, "x-kingston-sa04g-4g", 1024, 2.82, 12, "" },
	{ PREDICTION, OPEN_UNITS, "x-kingston-sa04g-4g", 512, 1.25, 12, "" },
	{ PREDICTION, OPEN_UNITS, "x-kingston-sa04g-4g", 256, 0.607, 12, "" },
	{ CALIBRATION, OPEN_UNITS, "x-kingston-sa04g-4g", 128, 0.302, 12, "" },
	{ PREDICTION, RANDOM_SIZE, "x-slow-4g", 16, 37 * 1.024e-3, 12, "printed in KiB/s" },
	{ PREDICTION, RANDOM_SIZE, "x-slow-4g", 512, 1199 * 1.024e-3, 12, "printed in KiB/s" },
	{ PREDICTION, RANDOM_SIZE, "x-slow-4g", 1024, 2332 * 1.024e-3, 12, "printed in KiB/s" },
	{ SHOWN, RANDOM_SIZE, "x-slow-4g", 16384, 8077 * 1.024e-3, 0,
	  "four units at once; the source's linear rate is 15 % higher" },

	{ PREDICTION, APPEND, "transcend-ts8gcf266-mft", 0, 7000, 12,
	  "the share of its map is taken from all three rows" },
	{ PREDICTION, APPEND, "sandisk-sata5000-32g-mft", 0, 8000, 12, "printed: more than 8,000" },
	{ PREDICTION, APPEND, "samsung-raid5-4-mft", 0, 17000, 12, "" },

	ARRAY(CALIBRATION, ARRAY_READ_1, "raid5-4", 3600, 3, ""),
	ARRAY(PREDICTION, ARRAY_READ, "raid5-4", 14000, 6, ""),
	ARRAY(PREDICTION, ARRAY_LINEAR, "raid5-4", 80, 8, ""),
	ARRAY(CALIBRATION, ARRAY_LINEAR_READ, "raid5-4", 140, 5, "the adapter's limit"),
	ARRAY(PREDICTION, ARRAY_WRITE, "raid0-4", 90, 10, ""),
	ARRAY(PREDICTION, ARRAY_WRITE, "raid10-4", 45, 10, ""),
	ARRAY(SHOWN, ARRAY_WRITE, "raid5-4", 35, 0,
	      "two reads and two writes each do not explain it"),
};

#endif
