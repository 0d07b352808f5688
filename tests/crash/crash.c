/* SPDX-License-Identifier: MIT */
/* The crash driver's command line: attacks first, then random workloads until the budget is
 * used. */
#include <getopt.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>

#include "crash.h"

static void usage(FILE *f)
{
	fprintf(f,
		"usage: crash [--seed N] [--images N | --seconds N] [--attack NAME | --list | --no-attacks]\n"
		"             [--replay ID] [--verbose]\n"
		"Commits, checkpoints and recoveries on simulated cards, the power cut at every write and flush.\n"
		"  --seed N      first workload (default 1)\n"
		"  --images N    stop after that many images of workloads (default 40000)\n"
		"  --seconds N   stop after that time\n"
		"  --attack NAME only this attack, no workloads\n"
		"  --thin N      only one image of a cut in N, for slow builds (part of an ID too)\n"
		"  --lag N, --lie N|records   of all workloads: the log's lag; FLUSHes that the card loses (part of an ID too)\n"
		"  --forgeries N how many of the attack of that name (default 10000)\n"
		"  --away        of workloads: no operation fails, but cards go away and come back (part of an ID too)\n"
		"  --ext4        only workloads with a real file system\n"
		"  --measure     what the lies do is counted, not judged\n"
		"  --list        tells the attacks\n"
		"  --collateral ring|all   at a cut the erase block being written turns to garbage; with --measure\n"
		"  --replay ID   runs what a failure names again and tells what it does\n");
}

static void report(uint64_t start_ns)
{
	double s = (double)(now_ns() - start_ns) / 1e9;
	struct totals *t = &total;

	printf("crash: %llu workloads, %llu attaches, %llu commits (%llu of paths, %llu failed, %llu too big), %llu checkpoints, %llu stopped, "
	       "%llu recoveries, %llu trims, %llu spills, %llu groups that began an erase block, %llu wraps, %llu held, %llu gone back to, %llu failed operations, %llu times a card came back, %llu refused that had lied\n",
	       (unsigned long long)t->workloads, (unsigned long long)t->attaches,
	       (unsigned long long)t->commits, (unsigned long long)t->paths,
	       (unsigned long long)t->failed, (unsigned long long)t->too_big,
	       (unsigned long long)t->checkpoints, (unsigned long long)t->stopped,
	       (unsigned long long)t->recoveries, (unsigned long long)t->trims,
	       (unsigned long long)t->spills, (unsigned long long)t->fresh,
	       (unsigned long long)t->wraps, (unsigned long long)t->holds,
	       (unsigned long long)t->backs, (unsigned long long)t->faults,
	       (unsigned long long)t->returns, (unsigned long long)t->refusals);
	printf("crash: %llu cuts, %llu images (%llu guarded): %llu held N, %llu N+1; up to %llu block writes in flight\n",
	       (unsigned long long)t->cuts, (unsigned long long)t->images,
	       (unsigned long long)t->guarded, (unsigned long long)t->is_old,
	       (unsigned long long)t->is_new, (unsigned long long)t->max_pending);
	if (t->fscks)
		printf("crash: %llu recovered ext2 and ext4 volumes: e2fsck clean, their tree that of the generation\n",
		       (unsigned long long)t->fscks);
	if (t->is_older)
		printf("crash: %llu images of cards that lie held an older generation\n",
		       (unsigned long long)t->is_older);
	if (measure) {
		printf("crash: lies: %llu mixtures, %llu broken logs, by commits lost:",
		       (unsigned long long)t->mixed, (unsigned long long)t->broken);
		for (unsigned i = 1; i < ARRAY_SIZE(t->lost); i++)
			if (t->lost[i])
				printf(" %u: %llu", i, (unsigned long long)t->lost[i]);
		putchar('\n');
	}
	printf("crash: %.1f s, %.0f images/s%s\n", s, (double)t->images / s,
	       measure ? "" : ", none held anything else");
}

static const struct attack *attack_nr(unsigned i)
{
	const struct {
		const struct attack *a;
		unsigned n;
	} all[] = { { attacks, n_attacks },
		    { card_attacks, n_card_attacks },
		    { forge_attacks, n_forge_attacks } };

	for (size_t k = 0; k < ARRAY_SIZE(all); i -= all[k++].n)
		if (i < all[k].n)
			return &all[k].a[i];
	return NULL;
}

/* at is as the attack sets it, except for values from the command line */
static int run_attacks(const char *only)
{
	struct position p = at;
	const struct attack *a;
	unsigned n = 0;

	for (unsigned i = 0; (a = attack_nr(i)); i++) {
		if (only && strcmp(only, a->name))
			continue;
		at = p;
		at.attack = a->name;
		a->run();
		n++;
	}
	at = p;
	if (n)
		printf("crash: %u attacks held\n", n);
	return n ? 0 : -1;
}

/* NAME:SEED:STEP:CUT:VARIANT[,OPTION=VALUE...], NAME "w": a workload. *ret_name points into id. */
static bool parse_id(char *id, char **ret_name)
{
	char *colon = strchr(id, ':'), *comma = strchr(id, ',');
	unsigned long long a, b, c, d;

	if (!colon || sscanf(colon, ":%llu:%llu:%llu:%llu", &a, &b, &c, &d) != 4)
		return false;
	at.replay = true;
	at.want.seed = a;
	at.want.step = b;
	at.want.cut = c;
	at.want.variant = d;
	while (comma) {
		sscanf(comma, ",lag=%d", &force_lag);
		sscanf(comma, ",lie=%d", &force_lie);
		sscanf(comma, ",ext4=%d", &force_ext4);
		force_away |= !strncmp(comma, ",away", 5);
		sscanf(comma, ",thin=%llu", (unsigned long long *)&thin);
		comma = strchr(comma + 1, ',');
	}
	*colon = '\0';
	*ret_name = id;
	return true;
}

/* The command line options that define a run. */
static const char *id_options(void)
{
	static char text[80];
	int n = 0;

	if (force_lag >= 0)
		n += snprintf(text + n, sizeof(text) - (size_t)n, ",lag=%d", force_lag);
	if (force_lie >= 0)
		n += snprintf(text + n, sizeof(text) - (size_t)n, ",lie=%d", force_lie);
	if (force_ext4)
		n += snprintf(text + n, sizeof(text) - (size_t)n, ",ext4=%d", force_ext4);
	if (force_away)
		n += snprintf(text + n, sizeof(text) - (size_t)n, ",away");
	if (thin > 1)
		snprintf(text + n, sizeof(text) - (size_t)n, ",thin=%llu",
			 (unsigned long long)thin);
	return text;
}

static int replay(const char *name)
{
	if (strcmp(name, "w"))
		return run_attacks(name) < 0 ? 2 : 0;
	workload_run(at.want.seed);
	printf("crash: workload %llu passes\n", (unsigned long long)at.want.seed);
	return 0;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "seed", 1, NULL, 's' },	{ "images", 1, NULL, 'n' },
		{ "seconds", 1, NULL, 't' },	{ "attack", 1, NULL, 'a' },
		{ "list", 0, NULL, 'l' },	{ "no-attacks", 0, NULL, 'x' },
		{ "replay", 1, NULL, 'r' },	{ "verbose", 0, NULL, 'v' },
		{ "thin", 1, NULL, 'i' },	{ "lag", 1, NULL, 'l' + 256 },
		{ "lie", 1, NULL, 'm' },	{ "measure", 0, NULL, 'u' },
		{ "collateral", 1, NULL, 'c' }, { "ext4", 0, NULL, 'e' },
		{ "away", 0, NULL, 'w' },	{ "forgeries", 1, NULL, 'f' },
		{ "help", 0, NULL, 'h' },	{ 0 }
	};
	uint64_t seed = 1, images = 40000, seconds = 0, start_ns = now_ns();
	const char *only = NULL;
	char *again = NULL;
	bool no_attacks = false;
	int o;

	while ((o = getopt_long(argc, argv, "", options, NULL)) != -1)
		switch (o) {
		case 's':
			seed = strtoull(optarg, NULL, 0);
			break;
		case 'n':
			images = strtoull(optarg, NULL, 0);
			break;
		case 't':
			seconds = strtoull(optarg, NULL, 0);
			images = 0;
			break;
		case 'i':
			thin = max_u64(1, strtoull(optarg, NULL, 0));
			break;
		case 'l' + 256:
			force_lag = atoi(optarg);
			break;
		case 'm':
			force_lie = !strcmp(optarg, "records") ? LIE_RECORDS : atoi(optarg);
			break;
		case 'c':
			collateral = !strcmp(optarg, "ring") ? COLLATERAL_RING : COLLATERAL_ALL;
			break;
		case 'f':
			forgeries = strtoull(optarg, NULL, 0);
			break;
		case 'w':
			force_away = true;
			break;
		case 'e':
			force_ext4 = 1;
			break;
		case 'u':
			measure = no_attacks = true;
			break;
		case 'a':
			only = optarg;
			break;
		case 'x':
			no_attacks = true;
			break;
		case 'v':
			verbose = 1;
			break;
		case 'l':
			for (unsigned i = 0; attack_nr(i); i++)
				printf("%-18s %s\n", attack_nr(i)->name, attack_nr(i)->what);
			return 0;
		case 'r':
			if (!parse_id(optarg, &again)) {
				usage(stderr);
				return 2;
			}
			break;
		default:
			usage(o == 'h' ? stdout : stderr);
			return o == 'h' ? 0 : 2;
		}
	/* every attach allocates a megabyte: keep the memory */
	mallopt(M_MMAP_THRESHOLD, 1 << 28);
	mallopt(M_TRIM_THRESHOLD, 1 << 29);
	at.options = id_options();
	if (at.replay)
		return replay(again);
	if (!no_attacks && run_attacks(only) < 0) {
		fprintf(stderr, "crash: no attack %s, see --list\n", only);
		return 2;
	}
	images += total.images; /* the attacks count their own */
	while (!only &&
	       (seconds ? now_ns() - start_ns < seconds * 1000000000ull : total.images < images))
		workload_run(seed++);
	report(start_ns);
	return 0;
}
