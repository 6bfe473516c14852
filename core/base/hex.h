/* SPDX-License-Identifier: Apache-2.0
 *
 * hex: hexadecimal digits. Any thread, async-signal-safe.
 */
#ifndef HVD_BASE_HEX_H
#define HVD_BASE_HEX_H

/* The value of one digit, upper or lower case; -1: not a digit. */
static inline int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20; /* lower case */
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

#endif
