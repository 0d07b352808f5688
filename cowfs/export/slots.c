/* SPDX-License-Identifier: MIT */
#include "export/slots.h"

#include <errno.h>
#include <stdatomic.h>

#include "base/io.h"
#include "base/thread.h"

struct slots {
	pthread_mutex_t lock; /* held for moments; protects all fields below */
	pthread_cond_t all_free;
	struct slot *small, *large; /* free slots */
	_Atomic unsigned used;	    /* written under lock */
	struct slot slot[SLOTS_SMALL + SLOTS_LARGE];
};

int slots_new(struct slots **ret, size_t large_bytes)
{
	struct slots *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->all_free, NULL);
	for (unsigned i = 0; i < ARRAY_SIZE(s->slot); i++) {
		struct slot *one = &s->slot[i];

		one->slots = s;
		one->large = i >= SLOTS_SMALL;
		one->buf = io_alloc(one->large ? large_bytes : SLOT_SMALL_BYTES);
		if (!one->buf) {
			slots_free(s);
			return -ENOMEM;
		}
		s->used++;
		slot_put(one);
	}
	*ret = s;
	return 0;
}

void slots_free(struct slots *s)
{
	if (!s)
		return;
	for (unsigned i = 0; i < ARRAY_SIZE(s->slot); i++)
		free(s->slot[i].buf);
	pthread_cond_destroy(&s->all_free);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

struct slot *slot_get(struct slots *s, size_t len_bytes)
{
	struct slot **list = len_bytes <= SLOT_SMALL_BYTES ? &s->small : &s->large, *slot;

	LOCKED(&s->lock);
	slot = *list;
	if (slot) {
		*list = slot->next;
		s->used++;
	}
	return slot;
}

void slot_put(struct slot *slot)
{
	struct slots *s = slot->slots;
	struct slot **list = slot->large ? &s->large : &s->small;

	LOCKED(&s->lock);
	slot->next = *list;
	*list = slot;
	if (--s->used == 0)
		pthread_cond_signal(&s->all_free);
}

unsigned slots_used(const struct slots *s)
{
	return s->used;
}

void slots_wait(struct slots *s)
{
	LOCKED(&s->lock);
	while (s->used)
		pthread_cond_wait(&s->all_free, &s->lock);
}
