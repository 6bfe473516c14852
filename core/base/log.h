/* SPDX-License-Identifier: Apache-2.0
 *
 * log: lines on stderr, one write(2) each. Any thread.
 *
 * A library logs at debug, or once at warn what a user must know. A program logs an error once, in
 * main. The level comes from HVD_LOG_LEVEL (error warn info debug trace; default warn).
 */
#ifndef HVD_BASE_LOG_H
#define HVD_BASE_LOG_H

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG, LOG_TRACE };

/* The prefix of each line, "hvd" by default; a rank sets "hvd[3]". Copied. */
void log_set_tag(const char *tag);

void log_set_level(enum log_level level);
enum log_level log_level(void);

/* -EINVAL for an unknown word; *ret_level is untouched then. */
int log_level_parse(const char *word, enum log_level *ret_level);

void log_line(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define log_error(...) log_line(LOG_ERROR, __VA_ARGS__)
#define log_warn(...)  log_line(LOG_WARN, __VA_ARGS__)
#define log_info(...)  log_line(LOG_INFO, __VA_ARGS__)
#define log_debug(...)                                                                             \
    do {                                                                                           \
        if (log_level() >= LOG_DEBUG)                                                              \
            log_line(LOG_DEBUG, __VA_ARGS__);                                                      \
    } while (0)

#endif
