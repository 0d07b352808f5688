/*
 * SPDX-License-Identifier: MIT
 *
 * A model of the log (docs/FORMAT.md) with a generation that is held: commit, checkpoint, hold,
 * release, the order to go back, boots of a trial, recovery. The power may go between any two writes. What was not flushed is
 * then done, dropped or garbage, in any order. run.sh checks it with spin.
 *
 * One slot of the ring is one record with its payload. A block has the number of the image that
 * wrote it as its content. Left out: segments, the guard, spilled payload,
 * damage.
 *
 * -DLAG=1: the card may lose what it acknowledged since the last record but one.
 * -DTRIAL=BOOTS: the operations are commit, commit --trial, accept and a reboot.
 * -DNO_...: drops one rule; spin must find a trace.
 */
#ifndef LAG
#define LAG 0
#endif
#ifndef OPS
#define OPS 5 /* operations in all */
#endif
#ifndef CUTS
#define CUTS 2
#endif
#ifndef TRIAL
#define TRIAL 0
#endif
#define NB 2			   /* blocks of the volume */
#ifndef NS
#define NS (LAG * 14 + 7 + CUTS) /* slots of the ring */
#endif
#define RESERVE (LAG * 8 + 3 + CUTS) /* slots that a commit leaves: for X, an open record, a tail, and one for each cut */
#define NONE 255		   /* nothing is pending */
#define GARBAGE 254

#define EACH(x, count) x = 0; do :: x == count -> break :: else ->
#define NEXT(x) ; x++ od

#define LOGGED 1 /* what a record says of a block; 0: nothing */
#define DIRECT 2

#define GONE 0 /* a write of this life: on its way, acknowledged once, durable */
#define SENT 1
#define ACKED 2
#define DURABLE 3

typedef image { byte b[NB] } /* content of each block; 0: free */
typedef record {
	byte seq, img, prev, tail, floor, fall;
	bool held; /* the generation at the oldest end of a run of these is held */
	bool back; /* of the newest record: the next session goes back to that generation */
	byte boots; /* of the newest record: 1 + boots that are left for a trial; 0: none */
	byte k[NB];
};

/* ---- the card ---- */
record ring[NS], below[NS]; /* as written; what a write that is not durable would uncover */
byte rs[NS], ps[NS];	    /* the record's write, and that of its payload */
byte home[NB], sent[NB], acked[NB];

/* ---- what must hold: ghosts ---- */
image im[OPS + 2];
byte nimg;
byte now, next;		/* images that recovery may choose; next == now: one */
byte older;		/* with lag: the image of the record before */
byte kept, wants, kept_older; /* image that is held; after the record under way; before it */
bool asked, asks, asked_older; /* the order to go back, in the same way */
bool trying, accepted;	/* a trial has begun; an accept has returned since */
byte used, old;		/* sessions of what is on trial; the image before it */

/* ---- the session ---- */
record n;		/* the newest record */
byte at, cursor;	/* its slot; the next one */
byte highest, hold, hold_tail, hold_img; /* hold: seq of H, 0: none */
byte boots;		/* records have them */
bool back, going;	/* records have the order; the first record, which goes back, is due */
byte tail_now, tail_before; /* tail of the newest and of the older candidate */
bool home_done, cold, alone;
byte same;		/* records of one image, newest first */
byte direct[3];		/* bits: blocks that the three newest records wrote in place */
byte ops, cuts, tries, l;

/* scratch; hidden, since it does not matter between two steps */
hidden byte i, j, s, c, best, bestslot, floor, cur, dom, content, was;
hidden byte ok;
hidden byte from[NB];
record w; /* the record to write */

inline find(q, ret) /* slot of record q, or NS */
{
	ret = NS;
	EACH(j, NS)
		if
		:: ring[j].seq == q && q && ret == NS -> ret = j
		:: else
		fi
		NEXT(j)
}

/* from[b]: the slot that the chain from slot c reads block b from; NS: its home */
inline look(tail_seq)
{
	EACH(i, NB) from[i] = NS NEXT(i);
	dom = 0; cur = c; ok = true;
	do
	:: cur == NS -> ok = false; break
	:: else ->
		EACH(i, NB)
			if
			:: ring[cur].k[i] && !(dom >> i & 1) ->
				dom = dom | 1 << i;
				if
				:: ring[cur].k[i] == LOGGED -> from[i] = cur
				:: else
				fi;
				/* rules 4 and 5: read back what is above the floor */
				if
				:: ring[cur].seq >= ring[c].floor &&
				   (ring[cur].k[i] == LOGGED && ps[cur] != DURABLE ||
				    ring[cur].k[i] == DIRECT && home[i] != ring[cur].img) -> ok = false
				:: else
				fi
			:: else
			fi
		NEXT(i);
		if
		:: ring[cur].seq <= tail_seq -> ok = (ok && ring[cur].seq == tail_seq); break
		:: else -> find(ring[cur].prev, s); cur = s
		fi
	od
}

/* c: from the slot of a record with the flag to that of the held generation */
inline to_held()
{
	cur = c; s = c;
	do
	:: s == NS || !ring[s].held -> break
	:: else -> cur = s; find(ring[cur].prev, s)
	od;
	c = cur
}

/* look(), for the candidate in slot c: one with the order stands for the held generation */
inline judge()
{
	was = c;
	if
	:: ring[c].back -> to_held()
	:: else
	fi;
	look(ring[c].tail);
	c = was
}

/* The chain from slot c must be the image x. */
inline whole(x)
{
	EACH(i, NB)
		if
		:: from[i] == NS -> content = home[i]
		:: else ->
			assert(ps[from[i]] == DURABLE);
			content = (ring[from[i]].k[i] == LOGGED -> ring[from[i]].img : GARBAGE)
		fi;
		assert(!im[x].b[i] || content == im[x].b[i])
		NEXT(i)
}

inline copy(dst, src)
{
	dst.seq = src.seq; dst.img = src.img; dst.prev = src.prev; dst.tail = src.tail; dst.floor = src.floor; dst.fall = src.fall;
	dst.held = src.held; dst.back = src.back; dst.boots = src.boots; dst.k[0] = src.k[0]; dst.k[1] = src.k[1]
}

/* The power goes: each write that is not durable is done, dropped or garbage. */
inline lose()
{
	l = 0;
	do
	:: l == NS -> break
	:: else ->
		if
		:: rs[l] == SENT || (LAG && rs[l] == ACKED) ->
			if
			:: true
			:: copy(ring[l], below[l])
			:: ring[l].seq = 0
			fi
		:: else
		fi;
		rs[l] = DURABLE;
		if
		:: ps[l] == SENT || (LAG && ps[l] == ACKED) ->
			if
			:: ps[l] = DURABLE
			:: ps[l] = GONE
			fi
		:: else
		fi;
		l++
	od;
	l = 0;
	do
	:: l == NB -> break
	:: else ->
		if
		:: true
		:: acked[l] != NONE -> home[l] = acked[l]
		:: sent[l] != NONE -> home[l] = sent[l]
		:: sent[l] != NONE || acked[l] != NONE -> home[l] = GARBAGE
		fi;
		sent[l] = NONE; acked[l] = NONE;
		l++
	od
}

inline durable(x, v) /* a write to a home that counts from now on */
{
	if
	:: v != NONE -> home[x] = v; v = NONE
	:: else
	fi
}

/* A FLUSH: with lag it promises nothing. */
inline flush()
{
	d_step {
		EACH(i, NS)
			if
			:: !LAG && rs[i] == SENT -> rs[i] = DURABLE
			:: else
			fi;
			if
			:: !LAG && ps[i] == SENT -> ps[i] = DURABLE
			:: else
			fi
		NEXT(i);
		EACH(i, NB)
			if
			:: !LAG -> durable(i, sent[i])
			:: else
			fi
		NEXT(i);
	}
}

/* The FLUSH of a record: with lag what was sent before the record before it was acknowledged. */
inline ack()
{
	flush();
	d_step {
		EACH(i, NS)
			if
			:: rs[i] == ACKED -> rs[i] = DURABLE
			:: rs[i] == SENT -> rs[i] = ACKED
			:: else
			fi;
			if
			:: ps[i] == ACKED -> ps[i] = DURABLE
			:: ps[i] == SENT -> ps[i] = ACKED
			:: else
			fi
		NEXT(i);
		EACH(i, NB)
			durable(i, acked[i]);
			if
			:: sent[i] != NONE -> acked[i] = sent[i]; sent[i] = NONE
			:: else
			fi
		NEXT(i);
	}
}

#define CUT if :: cuts < CUTS -> cuts++; goto cut :: true fi

/* Slots from the cursor to that of the oldest record that a candidate needs. */
inline room(ret)
{
	d_step {
		best = (LAG && !alone && tail_before < tail_now -> tail_before : tail_now);
		find(best, s);
#ifdef NO_H1_RING
		s = (hold -> at : s);
#endif
		ret = (s + NS - cursor) % NS
	}
}

/* Fills the fields that all records have in common: on top of the newest. */
inline fill()
{
	w.seq = highest + 1; w.img = n.img; w.prev = n.seq; w.held = (hold != 0);
#ifdef NO_H4_FLAG
	w.back = false;
#else
	w.back = (hold && back);
#endif
#ifdef NO_T_REPEAT
	w.boots = 0;
#else
	w.boots = (hold -> boots : 0);
#endif
	w.k[0] = 0; w.k[1] = 0;
	w.tail = (home_done -> (LAG && !alone -> n.seq : w.seq) : n.tail);
	w.floor = (LAG && !alone -> n.seq : w.seq);
	w.fall = (LAG && n.floor < n.seq -> n.floor : n.seq)
}

/* Writes the record w, and accepts it. */
inline put()
{
	d_step {
		highest = w.seq;
		find(tail_now, s);
		/* R9: nothing that the newest generation needs. */
#ifndef NO_H5
#ifndef NO_H1_RING
#ifndef NO_H4_PLACE
		assert(cursor != at && cursor != s || n.seq == 0);
#endif
#endif
#endif
		copy(below[cursor], ring[cursor]);
		copy(ring[cursor], w);
		rs[cursor] = SENT
	};
	CUT;
	ack();
	d_step {
		if
		:: w.tail != n.tail || n.seq == 0 -> tail_before = tail_now; tail_now = w.tail
		:: else -> tail_before = tail_now
		fi;
		older = now; now = next; kept_older = kept; kept = wants;
		asked_older = asked; asked = asks;
		same = (w.k[0] || w.k[1] || w.img != n.img -> 1 : (same < 4 -> same + 1 : 4));
		direct[2] = direct[1]; direct[1] = direct[0];
		direct[0] = (w.k[0] == DIRECT) | (w.k[1] == DIRECT) << 1;
		copy(n, w);
		at = cursor; cursor = (cursor + 1) % NS;
		w.seq = 0; w.k[0] = 0; w.k[1] = 0
	}
}

inline pad(times)
{
	tries = times;
	do
	:: tries == 0 || !LAG -> break
	:: else -> tries--; d_step { fill() }; put()
	od;
	skip
}

/* What was found may be in the cache of the card only. A session that was opened at H begins with an
 * open record whose chain goes to H (H4). */
inline settle()
{
	if
	:: going ->
		d_step {
			fill();
			w.tail = hold_tail; w.held = false; w.back = false;
			w.prev = hold; asks = false; w.boots = 0; boots = 0;
#ifdef NO_H4_CHAIN
			w.prev = n.seq;
#endif
#ifdef NO_H4_PLACE
			find(hold, s);
			cursor = (s + 1) % NS;
#endif
			hold = 0; going = false
		};
#ifndef NO_H4_FIRST
		put();
#endif
		d_step { c = at; look(n.tail); home_done = (from[0] == NS && from[1] == NS) }
	:: else
	fi;
	do
	:: !cold -> break
	:: cold && (!LAG && same >= 1 || same >= 3) -> cold = false
	:: else -> d_step { fill() }; put(); same = (LAG -> same : 3)
	od;
	skip
}

inline write_home(x)
{
	if
	:: from[x] != NS -> sent[x] = ring[from[x]].img
	:: else
	fi
}

inline checkpoint()
{
	/* both candidates read from the log */
	do
	:: !LAG || same >= 2 -> break
	:: else -> d_step { fill() }; put()
	od;
	skip;
	d_step { c = at; look(n.tail); write_home(0) }; CUT;
	d_step { c = at; look(n.tail); write_home(1) }; CUT;
	flush();
	pad(2);
	home_done = true;
	d_step { fill() };
	put();
	pad(1)
}

inline recover()
{
	atomic {
		floor = 0; best = 0; bestslot = NS;
		EACH(c, NS)
			if
			:: ring[c].seq && ring[c].fall > floor -> floor = ring[c].fall
			:: else
			fi
		NEXT(c);
		EACH(c, NS)
			if
			:: ring[c].seq > best && ring[c].seq >= floor ->
				judge();
				if
				:: ok -> best = ring[c].seq; bestslot = c
				:: else
				fi
			:: else
			fi;
			highest = (ring[c].seq > highest -> ring[c].seq : highest)
		NEXT(c);
		assert(best); /* some generation is always complete */
		c = bestslot;
		judge();
		copy(n, ring[c]);
		going = n.back;
		assert(going && (asked || asks || LAG && asked_older) ||
		       !going && (!asked || !asks || LAG && !asked_older));
		if
		:: going -> to_held(); n.img = ring[c].img; assert(n.img == kept || n.img == wants || LAG && n.img == kept_older)
		:: else -> /* exactly N or N+1 */
			assert(n.img == now || n.img == next || LAG && n.img == older)
		fi;
		whole(n.img);
		home_done = true;
		EACH(i, NB) home_done = home_done && from[i] == NS NEXT(i);
		/* the hold that is found is the one that was made, and H is whole */
		hold = 0;
		if
		:: n.held ->
			to_held();
			assert(s != NS); /* what lies before H is not overwritten either */
			hold = ring[c].seq; hold_tail = ring[c].tail; hold_img = ring[c].img;
			assert(hold_img == kept || hold_img == wants || LAG && hold_img == kept_older);
			look(hold_tail);
			assert(ok && hold_tail == n.tail);
			whole(hold_img);
			home_done = false
		:: else -> assert(!kept || !wants || LAG && !kept_older)
		fi;
		/* of a trial: the old image, or the new one with its boots, or accepted */
		assert(!trying || n.img <= old || n.boots || !wants);
		assert(!accepted || !going);
		trying = trying && n.boots && !going;
		boots = n.boots;
		back = false; asked = going; asks = going; asked_older = going;
		at = bestslot; c = at;
		now = n.img; next = now; older = now;
		kept = (hold -> hold_img : 0); wants = (going -> 0 : kept); kept_older = kept;
		tail_now = n.tail; tail_before = n.tail;
		/* never two answers: what lies behind the newest record and was not chosen is overwritten
		 * only by a record that is newer */
		cursor = (at + 1) % NS;
		cold = (ops > 0); alone = false; same = 3 * !cold;
		/* with lag: rule L5 */
		direct[0] = 3 * cold; direct[1] = direct[0]; direct[2] = direct[0];
		w.seq = 0; w.img = 0; w.prev = 0; w.tail = 0; w.floor = 0; w.fall = 0; w.held = 0; w.back = 0; w.boots = 0; w.k[0] = 0; w.k[1] = 0
	}
}

/* May block b be written in place? */
#ifdef NO_H1_DIRECT
#define HELD_FREE(x) true
#else
#define HELD_FREE(x) (!hold || !im[hold_img].b[x])
#endif
#define MAY(x)                                                                                     \
	(!im[now].b[x] && HELD_FREE(x) &&                                                          \
	 (!LAG || !im[older].b[x] && !((direct[0] | direct[1] | direct[2]) >> x & 1)))

inline change(x)
{
	if
	:: !TRIAL -> im[nimg].b[x] = im[now].b[x]
	:: im[nimg].b[x] = nimg;
	   w.k[x] = (MAY(x) -> DIRECT : LOGGED)
	:: !TRIAL -> im[nimg].b[x] = 0
	fi
}

inline send(x)
{
	if
	:: w.k[x] == DIRECT -> sent[x] = nimg; CUT
	:: else
	fi
}

#ifdef NO_H1_HOME
#define MAY_CHECKPOINT true
#else
#define MAY_CHECKPOINT (!hold)
#endif

#if LAG
#define REOPEN goto cut /* the card may lose the newest record now */
#else
#define REOPEN goto open
#endif

#ifdef NO_H5
#define ENOUGH(free) true
#else
#define ENOUGH(free) (free >= RESERVE + 1)
#endif

inline commit()
{
	if
	:: free < RESERVE + 1 && MAY_CHECKPOINT -> checkpoint(); room(free)
	:: else
	fi;
	if
	:: !ENOUGH(free) -> skip /* H5: refused, nothing is written */
	:: ENOUGH(free) ->
		nimg++;
		d_step { fill() };
		w.img = nimg;
		change(0); change(1);
		send(0); send(1);
		if
		:: w.k[0] == LOGGED || w.k[1] == LOGGED -> d_step { ps[cursor] = SENT; ring[cursor].seq = 0 }; CUT
		:: else
		fi;
		flush();
		next = nimg;
		home_done = home_done && w.k[0] != LOGGED && w.k[1] != LOGGED;
		put()
	fi
}

inline begin_hold() /* a record of the same image */
{
	d_step { fill(); w.held = true; wants = now };
	put();
	d_step { hold = n.seq; hold_tail = n.tail; hold_img = n.img; home_done = false };
#ifndef NO_H1_PAD
	pad(2)
#endif
}

/* A record with the boots that are left, or with the order to go back. */
inline put_boots()
{
	d_step { fill(); asks = back };
	put();
#ifdef NO_T_PAD
	pad((back -> 2 : 0))
#else
	pad(2)
#endif
}

/* The generation before is held, the number is on the card, and then comes the commit. */
inline begin_trial()
{
	d_step { trying = true; accepted = false; used = 0; old = now };
	begin_hold();
#ifdef NO_T_FIRST
	commit();
#endif
	boots = TRIAL + 1;
	put_boots();
#ifndef NO_T_FIRST
	commit()
#endif
}

/* One boot less; without any the next session goes back. */
inline count_boot()
{
	settle();
#ifndef NO_T_COUNT
	d_step { back = (boots == 1); boots = (back -> 1 : boots - 1) };
#endif
	put_boots();
	if
	:: back -> REOPEN
	:: else
	fi
}

#define COUNT if :: hold && boots && !going -> count_boot() :: else fi
#define BEGIN if :: trying -> used++; assert(used <= TRIAL) :: else fi

active proctype cowfs()
{
	byte free;

	/* a ring with one record, of image 1, all home */
	d_step {
		nimg = 1; now = 1; next = 1; older = 1;
		im[1].b[0] = 1; home[0] = 1;
		ring[0].seq = 1; ring[0].img = 1; ring[0].tail = 1; ring[0].floor = 1; ring[0].fall = 1;
		EACH(i, NS) rs[i] = DURABLE NEXT(i);
		EACH(i, NB) sent[i] = NONE; acked[i] = NONE NEXT(i);
	}
	goto open;
cut:
	atomic { lose() }
open:
	skip;
	recover();
#ifdef NO_T_BEFORE
	BEGIN; COUNT;
#elif TRIAL
	COUNT; BEGIN;
#endif
	do
	:: ops < OPS ->
		ops++;
		settle();
		room(free);
		if
		:: /* commit */
			commit()
#if TRIAL
		:: !hold && free >= RESERVE + 3 + LAG * 4 -> begin_trial()
		:: REOPEN
#else
		:: /* checkpoint */
			MAY_CHECKPOINT && n.tail != n.seq && free >= RESERVE -> checkpoint()
		:: /* hold */
			!hold && free >= RESERVE + 1 ->
			begin_hold()
		:: /* the order to go back, or not to: it counts for the next session; this one may go on */
			hold && free >= 1 + RESERVE ->
			d_step { back = !back; fill(); asks = back };
			put();
			pad(2);
			if
			:: true
			:: back -> REOPEN
			fi
#endif
		:: /* release, H3 */
			hold && free >= 1 + LAG * 3 ->
			d_step { fill(); w.held = false; w.back = false; w.boots = 0; wants = 0; asks = false };
#ifdef NO_H3
			/* a home write before the record is durable */
			d_step { c = at; look(n.tail); write_home(0) };
			CUT;
#endif
			d_step { hold = 0; back = false };
#ifdef NO_T_ACCEPT
			accepted = trying;
#endif
			put();
#ifndef NO_H3_LAG
			pad(2);
#endif
			d_step { c = at; look(n.tail); home_done = (from[0] == NS && from[1] == NS);
				 accepted = trying; trying = false }
		fi
	:: else -> break
	od;
	/* the end: once more what a cut at rest leaves */
	if
	:: cuts <= CUTS -> cuts = CUTS + 1; goto cut
	:: else
	fi
}
