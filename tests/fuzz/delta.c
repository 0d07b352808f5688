/* SPDX-License-Identifier: MIT */
/*
 * Heads and sections of a delta, as they come out of a file whose checksums are right.
 *
 * Input: kind u8 (bit 0: a head, or a section), then the bytes of it. Of a section a number of blocks of the volume u32
 * and where the one before ended u32 come first.
 */
#include "offline/delta_section.h"
#include "fuzz.h"

static void try_head(const struct fuzz_input *in)
{
	uint8_t buf[DELTA_HEAD_BYTES] = { 0 };
	struct delta_head h, again;
	size_t n = min_u64(in->left, sizeof(buf) - DELTA_SUM_BYTES);

	memcpy(buf, in->p, n);
	section_sum(buf, sizeof(buf) - DELTA_SUM_BYTES, buf + sizeof(buf) - DELTA_SUM_BYTES);
	if (delta_get_head(buf, &h) < 0)
		return;
	FUZZ_PROMISE(h.volume_blks && h.volume_blks <= UINT32_MAX);
	FUZZ_PROMISE(h.kept_blks <= h.volume_blks && h.data_blks <= h.volume_blks - h.kept_blks);
	FUZZ_PROMISE(h.file_bytes >= DELTA_HEAD_BYTES + DELTA_SIGNATURE_BYTES +
					     (uint64_t)h.sections * SECTION_ENTRY_BYTES);
	FUZZ_PROMISE(memchr(h.fs_type, 0, sizeof(h.fs_type)));
	delta_put_head(buf, &h);
	FUZZ_PROMISE(delta_get_head(buf, &again) == 0 && !memcmp(&h, &again, sizeof(h)));
}

static void try_section(struct fuzz_input *in)
{
	uint64_t blks = fuzz_uint(in, 4), at = fuzz_uint(in, 4), first = at, data = 0;
	static struct section s;
	const uint8_t *content;
	uint8_t *copy = malloc(in->left + 1);

	if (!copy)
		abort();
	memcpy(copy, in->p, in->left);
	if (section_get(copy, in->left, blks, &at, &s, &content) == 0) {
		FUZZ_PROMISE(s.runs <= SECTION_RUNS && at >= first && at <= blks);
		for (uint32_t i = 0; i < s.runs; i++) {
			FUZZ_PROMISE(s.run[i].blk >= first && s.run[i].blks);
			FUZZ_PROMISE(s.run[i].blks <= SECTION_RUN_BLKS);
			FUZZ_PROMISE(!s.run[i].kept || !s.run[i].replaces);
			first = s.run[i].blk + s.run[i].blks;
			FUZZ_PROMISE(first <= blks);
			data += s.run[i].kept ? 0 : s.run[i].blks;
		}
		FUZZ_PROMISE(s.replaced <= SECTION_DATA_BLKS);
		FUZZ_PROMISE(data == s.data_blks && data <= SECTION_DATA_BLKS);
		FUZZ_PROMISE(content + blk_to_bytes(data) == copy + in->left);
	}
	free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct fuzz_input in = { data, len };

	if (fuzz_uint(&in, 1) & 1)
		try_head(&in);
	else
		try_section(&in);
	return 0;
}
