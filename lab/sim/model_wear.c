/* SPDX-License-Identifier: MIT */
/* Selects the physical units to erase, counts their erases, and retires worn-out units. */
#include <errno.h>
#include <string.h>

#include "sim/model_private.h"

#define COLD_GAP 32   /* erases by which a spare unit may lead before cold data is moved onto it */
#define COLD_EVERY 32 /* erases between two searches for cold data */

static uint64_t zone_of(const struct flash_model *m, uint64_t unit)
{
	return unit / m->wear.units_per_zone;
}

static uint32_t *spares_of(const struct flash_model *m, uint64_t zone)
{
	return m->wear.spare + zone * m->wear.spares_per_zone;
}

static uint64_t physical_units(const struct flash_model *m)
{
	return m->wear.zones * (m->wear.units_per_zone + m->wear.spares_per_zone);
}

int wear_model_new(struct flash_model *m)
{
	struct wear *w = &m->wear;

	if (m->flags & FLASH_NO_WEAR || m->p.class == FLASH_DISK)
		return 0;
	if (m->units > UINT32_MAX / 2)
		return -EINVAL;
	w->units_per_zone = m->p.wear == FLASH_WEAR_ZONE
				    ? min_u64(m->p.zone_bytes / m->p.unit_bytes, m->units)
				    : m->units;
	w->zones = (m->units + w->units_per_zone - 1) / w->units_per_zone;
	w->spares_per_zone = max_u64(1, w->units_per_zone * m->p.spare_ppm / 1000000);
	w->caused = calloc(m->units, sizeof(*w->caused));
	w->home = calloc(m->units, sizeof(*w->home));
	w->count = calloc(physical_units(m), sizeof(*w->count));
	w->spare = calloc(w->zones * w->spares_per_zone, sizeof(*w->spare));
	w->n_spare = calloc(w->zones, sizeof(*w->n_spare));
	if (!w->caused || !w->home || !w->count || !w->spare || !w->n_spare)
		return -ENOMEM;
	for (uint64_t u = 0; u < m->units; u++)
		w->home[u] = (uint32_t)(u + zone_of(m, u) * w->spares_per_zone);
	for (uint64_t z = 0; z < w->zones; z++) {
		w->n_spare[z] = (uint32_t)w->spares_per_zone;
		for (uint64_t i = 0; i < w->spares_per_zone; i++)
			spares_of(m, z)[i] = (uint32_t)((z + 1) * w->units_per_zone +
							z * w->spares_per_zone + i);
	}
	return 0;
}

void wear_model_free(struct flash_model *m)
{
	free(m->wear.caused);
	free(m->wear.home);
	free(m->wear.count);
	free(m->wear.spare);
	free(m->wear.n_spare);
}

void wear_model_copy(struct flash_model *to, const struct flash_model *from)
{
	const struct wear *f = &from->wear;
	struct wear *t = &to->wear;

	if (!t->caused || !f->caused)
		return;
	t->tick = f->tick;
	memcpy(t->caused, f->caused, from->units * sizeof(*f->caused));
	memcpy(t->home, f->home, from->units * sizeof(*f->home));
	memcpy(t->count, f->count, physical_units(from) * sizeof(*f->count));
	memcpy(t->spare, f->spare, f->zones * f->spares_per_zone * sizeof(*f->spare));
	memcpy(t->n_spare, f->n_spare, f->zones * sizeof(*f->n_spare));
}

uint64_t wear_model_spares(const struct flash_model *m)
{
	uint64_t n = 0;

	for (uint64_t z = 0; m->wear.caused && z < m->wear.zones; z++)
		n += m->wear.n_spare[z];
	return n;
}

/*
 * The limit is 3/4 to 5/4 of the nominal one, and the same for a physical unit in every run.
 * splitmix64's mixer.
 */
static bool is_worn(const struct flash_model *m, uint32_t phys)
{
	uint64_t z = (phys + 1) * 0x9e3779b97f4a7c15u, limit = m->p.erase_limit;

	if (!limit)
		return false;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return m->wear.count[phys] > limit * 3 / 4 + (z ^ (z >> 31)) % (limit / 2 + 1);
}

/* Erases a physical unit once. False: it is worn out. */
static bool erase_one(struct flash_model *m, uint32_t phys)
{
	if (++m->wear.count[phys] > m->st.worst_erases)
		m->st.worst_erases = m->wear.count[phys];
	if (!is_worn(m, phys))
		return true;
	m->st.bad_units++;
	return false;
}

/* The index of the least worn spare; of equal ones the lowest unit. */
static uint32_t best_spare(const struct flash_model *m, uint64_t zone)
{
	const uint32_t *spare = spares_of(m, zone);
	uint32_t best = 0;

	for (uint32_t i = 1; i < m->wear.n_spare[zone]; i++) {
		uint32_t a = m->wear.count[spare[i]], b = m->wear.count[spare[best]];

		if (a < b || (a == b && spare[i] < spare[best]))
			best = i;
	}
	return best;
}

static void lose_spare(struct flash_model *m, uint64_t zone, uint32_t i)
{
	uint32_t *spare = spares_of(m, zone);

	spare[i] = spare[--m->wear.n_spare[zone]];
	if (!m->wear.n_spare[zone])
		m->s.read_only = true;
}

/*
 * Moves the unit to a spare one. With FLASH_WEAR_NONE it stays where it is until its physical unit
 * is worn out.
 */
static void move_home(struct flash_model *m, uint64_t unit, uint64_t zone)
{
	uint32_t old = m->wear.home[unit], i = best_spare(m, zone);

	if (m->p.wear == FLASH_WEAR_NONE) {
		if (erase_one(m, old))
			return;
		m->wear.home[unit] = spares_of(m, zone)[i];
		lose_spare(m, zone, i);
		return;
	}
	m->wear.home[unit] = spares_of(m, zone)[i];
	spares_of(m, zone)[i] = old;
	if (!erase_one(m, old))
		lose_spare(m, zone, i);
}

/*
 * Static levelling: moves the data in the least erased unit to the most worn spare. Its old
 * physical unit becomes a spare.
 */
static uint64_t move_cold(struct flash_model *m)
{
	struct wear *w = &m->wear;
	uint32_t worst = 0, coldest = 0, home;

	for (uint32_t i = 1; i < w->n_spare[0]; i++)
		if (w->count[w->spare[i]] > w->count[w->spare[worst]])
			worst = i;
	for (uint32_t u = 1; u < m->units; u++)
		if (w->count[w->home[u]] < w->count[w->home[coldest]])
			coldest = u;
	home = w->home[coldest];
	if (w->count[w->spare[worst]] < w->count[home] + COLD_GAP)
		return 0;
	w->home[coldest] = w->spare[worst];
	w->spare[worst] = home;
	m->st.erases++;
	m->st.copied_bytes += m->p.unit_bytes;
	m->st.programmed_bytes += m->p.unit_bytes;
	if (!erase_one(m, home))
		lose_spare(m, 0, worst);
	return flash_copy_ns(&m->p, m->p.unit_bytes);
}

uint64_t wear_model_erase(struct flash_model *m, uint64_t unit, unsigned n)
{
	uint64_t zone;

	m->st.erases += n;
	if (!m->wear.caused)
		return 0;
	zone = zone_of(m, unit);
	m->wear.caused[unit] += n;
	if (m->wear.caused[unit] > m->st.hottest_erases) {
		m->st.hottest_erases = m->wear.caused[unit];
		m->st.hottest_unit = unit;
	}
	for (unsigned k = 0; k < n && !m->s.read_only; k++) {
		if (k == 0 || m->p.wear == FLASH_WEAR_NONE) {
			move_home(m, unit, zone);
		} else { /* the merged log is a spare unit as well */
			uint32_t i = best_spare(m, zone);

			if (!erase_one(m, spares_of(m, zone)[i]))
				lose_spare(m, zone, i);
		}
	}
	if (m->p.wear != FLASH_WEAR_GLOBAL || ++m->wear.tick % COLD_EVERY || m->s.read_only)
		return 0;
	return move_cold(m);
}
