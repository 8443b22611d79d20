/* The two forms of a report: XML, and lines of text. Depth is how many indents to print. */
#ifndef NODEVET_SIM_MARKUP_H
#define NODEVET_SIM_MARKUP_H

/* <tag>value</tag>, escaped; what XML cannot hold is a question mark. */
void element(unsigned int depth, const char *tag, const char *value);

/* Open and close an element that holds others. */
void element_open(unsigned int depth, const char *tag);
void element_close(unsigned int depth, const char *tag);

/* `label : value`; the colon is in the same column at every depth. */
void line(unsigned int depth, const char *label, const char *value);

/* A label alone, above what belongs to it. */
void line_head(unsigned int depth, const char *label);

#endif
