/* SPDX-License-Identifier: MIT */
/*
 * A boot loader. After each cut it changes its environment block, if the card has one there, and cowfs
 * attaches. Except in the lag of a card this costs no generation. The change counts, unless the log has
 * the block.
 */
#include <stdio.h>
#include <string.h>

#include "attacks.h"
#include "fs/loader.h"

enum { ENV_BLK = 7, FREE_BLK = 9, LOADERS = ENVS + ENVS_N - 1 };

const uint8_t *loader_content(unsigned n)
{
	static _Alignas(4096) uint8_t blk[ENVS_N][COW_BLK_BYTES];

	if (!blk[n][0]) {
		/* both sectors differ, so that a torn block is none of these */
		memset(blk[n], '#', 1024);
		memcpy(blk[n] + sprintf((char *)blk[n], "# GRUB Environment Block\n"),
		       "next_entry=", 11);
		blk[n][40] = blk[n][700] = (uint8_t)('A' + n);
		blk[n][41] = blk[n][701] = '\n';
	}
	return blk[n];
}

void loader_boots(struct world *w, const struct cards *c, const struct log_super *super,
		  const struct log_open_report *rep, const uint8_t *volume)
{
	static uint8_t before[MAX_BLKS][COW_BLK_BYTES], home[COW_BLK_BYTES];
	const size_t at_bytes = (size_t)blk_to_bytes(w->loader_blk);
	const uint8_t *mine = content_of(LOADERS), *now;
	struct log_open_report after;
	struct cards card;
	struct log *l;
	struct log_index *ix;
	enum log_where where;

	if (sim_peek(c->base, at_bytes, home, sizeof(home)) < 0)
		fail("peek");
	if (!loader_has_env(home))
		return;
	memcpy(before, volume, blk_to_bytes(w->shape.blks));
	cards_clone(&card, c);
	if (sim_poke(card.base, at_bytes, mine, COW_BLK_BYTES) < 0 ||
	    log_open(&l, card.base, card.log, super, 0, NULL, &after) < 0)
		fail("a boot loader wrote, and the log cannot be opened");
	ix = log_index_of(l);
	log_index_run(ix, w->loader_blk, 1, &where);
	now = volume_read(w, &card, ix);
	if (!w->shape.lag || !w->loader_open) {
		if (after.state != rep->state || after.newest.seq != rep->newest.seq)
			fail("a boot loader wrote: record %llu, state %d instead of %llu, %d: %s",
			     (unsigned long long)after.newest.seq, after.state,
			     (unsigned long long)rep->newest.seq, rep->state, after.why);
		memcpy(before[w->loader_blk], where == LOG_HOME ? mine : before[w->loader_blk],
		       COW_BLK_BYTES);
		if (!now || memcmp(before, now, blk_to_bytes(w->shape.blks)))
			fail("a boot loader wrote, and the volume has other content");
	}
	log_index_unref(ix);
	log_close(l);
	cards_close(&card);
}

/* Overwritten, written to a block that was free, and beside other files. Each commit is checkpointed, or every
 * third one; the checkpoint may be cut. */
void attack_loader(void)
{
	struct world w;

	for (uint64_t seed = 0; seed < 4 * SEEDS; seed++) {
		const unsigned checkpoint_every = seed / 16 % 2 ? 3 : 1;
		const struct shape s = { .blks = 24,
					 .full = seed % 2,
					 .segs = 12,
					 .external = seed / 2 % 2,
					 .lag = seed / 4 % 2 };

		attack_start(&w, &s, seed);
		w.loader_blk = seed / 8 % 2 ? ENV_BLK : FREE_BLK;
		for (unsigned i = 0; i < 6; i++) {
			at.step++;
			w.loader_open |= i % 3 != 2;
			if (i % 3 == 2)
				live_free(&w, w.loader_blk);
			else
				live_write(&w, w.loader_blk,
					   ENVS + (unsigned)rnd_below(&w, ENVS_N - 1));
			attack_write_run(&w, 1 + i, 2 + i % 3);
			attack_write_run(&w, 12, i % 2);
			attack_commit_ok(&w);
			if (i % 4 == 1) { /* the session ends before it */
				world_close(&w);
				world_open(&w);
			}
			if (i % checkpoint_every == 0) {
				attack_expect(world_checkpoint(&w, RECORD_TAIL, 0) == 0,
					      "checkpoint");
				w.loader_open = false;
			}
			if (i % 3 == 0)
				w.loader_open |= world_crash(&w);
		}
		world_free(&w);
	}
}
