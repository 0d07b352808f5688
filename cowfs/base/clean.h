/* SPDX-License-Identifier: MIT */
/*
 * Cleans text from outside (process names, file names, mount points, labels, models, answers of
 * other programs), so that it fits one line of a terminal, a log or a list of records. Callers use
 * this where they read such text, and again where they print it.
 */
#ifndef COWFS_BASE_CLEAN_H
#define COWFS_BASE_CLEAN_H

#include <limits.h>

#include "base/util.h"

/* Length of the UTF-8 sequence at s; 0 if it is invalid (overlong, surrogate, cut). */
size_t utf8_bytes(const char *s);
/*
 * Is the character at s visible? n: its utf8_bytes(). False: control characters (C0, DEL, C1),
 * separators of lines and paragraphs, marks that change the writing direction, the byte order mark,
 * bytes that are not UTF-8.
 */
bool utf8_shows(const char *s, size_t n);
/* Replaces each byte of an invisible character by '?', in place: the length stays. Returns text. */
char *clean_text(char *text);
/* The same on a copy, truncated to the buffer. Returns buf. */
char *clean_copy(char *buf, size_t size_bytes, const char *text);
#define CLEAN(text) clean_copy((char[512]){ 0 }, 512, (text))
/* As one word of a command for a shell, in a command that is printed: text, or ret with quotes. A desktop mounts a card
 * under its label, which is any text. */
#define SHELL_WORD_BYTES (4 * PATH_MAX)
const char *shell_word(const char *text, char ret[SHELL_WORD_BYTES]);
/* The number of characters in text. */
size_t clean_columns(const char *text);

#endif
