/* SPDX-License-Identifier: MIT */
/*
 * Cursor codec for on-card bytes: little-endian, field by field. A cursor that would leave its
 * buffer sets `bad` and touches nothing; the caller checks `bad` once at the end. Also reads single
 * fields of a superblock of known size.
 */
#ifndef COWFS_BASE_BYTES_H
#define COWFS_BASE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct bytes_writer {
	uint8_t *p;
	size_t size_bytes, pos;
	bool bad;
};

struct bytes_reader {
	const uint8_t *p;
	size_t size_bytes, pos;
	bool bad;
};

static inline void put_uint(struct bytes_writer *w, uint64_t v, size_t width)
{
	if (w->bad || w->size_bytes - w->pos < width) {
		w->bad = true;
		return;
	}
	for (size_t i = 0; i < width; i++)
		w->p[w->pos++] = (uint8_t)(v >> (8 * i));
}

static inline void put_u8(struct bytes_writer *w, uint8_t v)
{
	put_uint(w, v, 1);
}

static inline void put_u16(struct bytes_writer *w, uint16_t v)
{
	put_uint(w, v, 2);
}

static inline void put_u32(struct bytes_writer *w, uint32_t v)
{
	put_uint(w, v, 4);
}

static inline void put_u64(struct bytes_writer *w, uint64_t v)
{
	put_uint(w, v, 8);
}

static inline void put_bytes(struct bytes_writer *w, const void *src, size_t len)
{
	if (w->bad || w->size_bytes - w->pos < len) {
		w->bad = true;
		return;
	}
	memcpy(w->p + w->pos, src, len);
	w->pos += len;
}

static inline uint64_t get_uint(struct bytes_reader *r, size_t width)
{
	uint64_t v = 0;

	if (r->bad || r->size_bytes - r->pos < width) {
		r->bad = true;
		return 0;
	}
	const uint8_t *p = r->p + r->pos;

	r->pos += width;
	for (size_t i = 0; i < width; i++)
		v |= (uint64_t)p[i] << (8 * i);
	return v;
}

static inline uint8_t get_u8(struct bytes_reader *r)
{
	return (uint8_t)get_uint(r, 1);
}

static inline uint16_t get_u16(struct bytes_reader *r)
{
	return (uint16_t)get_uint(r, 2);
}

static inline uint32_t get_u32(struct bytes_reader *r)
{
	return (uint32_t)get_uint(r, 4);
}

static inline uint64_t get_u64(struct bytes_reader *r)
{
	return get_uint(r, 8);
}

static inline void get_bytes(struct bytes_reader *r, void *dst, size_t len)
{
	if (r->bad || r->size_bytes - r->pos < len) {
		r->bad = true;
		memset(dst, 0, len);
		return;
	}
	memcpy(dst, r->p + r->pos, len);
	r->pos += len;
}

static inline bool bytes_all_zero(const void *p, size_t len)
{
	const uint8_t *byte = p;

	return !len || (!byte[0] && memcmp(byte, byte + 1, len - 1) == 0);
}

/* true if the next len bytes exist and are all zero: for checks of reserved fields */
static inline bool get_zeroes(struct bytes_reader *r, size_t len)
{
	if (r->bad || r->size_bytes - r->pos < len) {
		r->bad = true;
		return false;
	}
	if (!bytes_all_zero(r->p + r->pos, len))
		return false;
	r->pos += len;
	return true;
}

/* One field of another format, at p + off. */
static inline uint64_t le_at(const uint8_t *p, size_t off, size_t width)
{
	uint64_t v = 0;

	for (size_t i = width; i; i--)
		v = v << 8 | p[off + i - 1];
	return v;
}

static inline void le_set(uint8_t *p, size_t off, size_t width, uint64_t v)
{
	for (size_t i = 0; i < width; i++)
		p[off + i] = (uint8_t)(v >> 8 * i);
}

static inline void be_set(uint8_t *p, size_t off, size_t width, uint64_t v)
{
	for (size_t i = 0; i < width; i++)
		p[off + i] = (uint8_t)(v >> 8 * (width - 1 - i));
}

static inline uint64_t be_at(const uint8_t *p, size_t off, size_t width)
{
	uint64_t v = 0;

	for (size_t i = 0; i < width; i++)
		v = v << 8 | p[off + i];
	return v;
}

#endif
