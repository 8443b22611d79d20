/* See markup.h. */
#include "markup.h"

#include <stdio.h>

enum { COLUMN = 55 };

static const char tabs[] = "\t\t\t\t\t\t\t\t";

static void print_escaped(const char *text)
{
    for (; *text; text++)
        switch (*text) {
        case '<':
            fputs("&lt;", stdout);
            break;
        case '>':
            fputs("&gt;", stdout);
            break;
        case '&':
            fputs("&amp;", stdout);
            break;
        case '"':
            fputs("&quot;", stdout);
            break;
        case '\'':
            fputs("&apos;", stdout);
            break;
        default: /* XML 1.0 has no other control characters, and the text must be UTF-8 */
            putchar((unsigned char)*text < ' ' || (unsigned char)*text > '~' ? '?' : *text);
        }
}

void element(unsigned int depth, const char *tag, const char *value)
{
    printf("%.*s<%s>", (int)depth, tabs, tag);
    print_escaped(value);
    printf("</%s>\n", tag);
}

void line(unsigned int depth, const char *label, const char *value)
{
    printf("%*s%-*s: %s\n", (int)depth * 4, "", COLUMN - (int)depth * 4, label, value);
}

void element_open(unsigned int depth, const char *tag)
{
    printf("%.*s<%s>\n", (int)depth, tabs, tag);
}

void element_close(unsigned int depth, const char *tag)
{
    printf("%.*s</%s>\n", (int)depth, tabs, tag);
}

void line_head(unsigned int depth, const char *label)
{
    printf("%*s%s\n", (int)depth * 4, "", label);
}
