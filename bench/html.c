/* html.c - cmark-gfm converts; here its output is put into a document and the charts into the output. */
#include "html.h"

#include <stdio.h>
#include <string.h>

#include "child.h"

/* An SVG's ids are unique in its own file only; in one page they get the chart's number in front. Inside tags alone:
 * text may say anything. */
static void add_svg_body(Text *out, const char *s, const char *end, int number)
{
    static const char *const before[] = { " id='", " id=\"", "href='#", "href=\"#", "url(#" };
    bool in_tag = false;
    while (s < end) {
        const char *title_end = NULL;
        if (strncmp(s, "<title>", 7) == 0) /* gnuplot's internal names, shown as tool tips */
            title_end = strstr(s, "</title>");
        if (title_end && title_end < end) {
            s = title_end + strlen("</title>");
            continue;
        }
        if (*s == '<' || *s == '>')
            in_tag = *s == '<';
        size_t n = 0;
        for (size_t i = 0; in_tag && i < COUNT_OF(before) && !n; i++)
            if (strncmp(s, before[i], strlen(before[i])) == 0)
                n = strlen(before[i]);
        text_add_bytes(out, s, n ? n : 1);
        if (n)
            text_format(out, "c%d-", number);
        s += n ? n : 1;
    }
}

static Status add_chart(Text *out, const char *path, const char *label, size_t label_length, int number)
{
    Text svg = { 0 };
    Status s = text_read_file(&svg, path);
    const char *open = strstr(text_bytes(&svg), "<svg");
    const char *box = open ? strstr(open, "viewBox=\"") : NULL;
    const char *box_end = box ? strchr(box + 9, '"') : NULL;
    const char *body = box_end ? strchr(box_end, '>') : NULL;
    const char *desc = body ? strstr(body, "</desc>") : NULL; /* after gnuplot's <title> and <desc> */
    if (s.code == STATUS_OK && !body)
        s = status_error(STATUS_IO, "%s: not an SVG drawing", path);
    if (s.code == STATUS_OK) {
        text_add(out, "<figure><div class=\"chart\"><svg xmlns=\"http://www.w3.org/2000/svg\" "
                      "xmlns:xlink=\"http://www.w3.org/1999/xlink\" role=\"img\" aria-label=\"");
        text_add_bytes(out, label, label_length); /* escaped by cmark as an attribute already */
        text_add(out, "\" ");
        text_add_bytes(out, box, (size_t)(box_end - box) + 1);
        text_add(out, ">");
        const char *start = desc ? desc + strlen("</desc>") : body + 1;
        add_svg_body(out, start, svg.bytes + svg.length, number);
        text_add(out, "</div></figure>");
    }
    text_free(&svg);
    return s;
}

/* Copy cmark's output; <img src="charts/..."> becomes the drawing, each table gets its box. These strings cannot come
 * from text of the page: cmark writes its '<' as &lt;. */
static Status add_body(Text *out, const char *s, const char *folder)
{
    static const char image[] = "<p><img src=\"charts/", table[] = "<table>", table_end[] = "</table>", alt[] = "\" alt=\"",
                      close[] = "\" /></p>";
    int number = 0;
    while (*s) {
        const char *tag = strchr(s, '<');
        if (!tag) {
            text_add(out, s);
            break;
        }
        text_add_bytes(out, s, (size_t)(tag - s));
        s = tag;
        if (strncmp(s, table, strlen(table)) == 0) {
            text_add(out, "<div class=\"scroll\"><table>");
            s += strlen(table);
        } else if (strncmp(s, table_end, strlen(table_end)) == 0) {
            text_add(out, "</table></div>");
            s += strlen(table_end);
        } else if (strncmp(s, image, strlen(image)) == 0) {
            const char *name = s + strlen(image), *name_end = strstr(name, alt);
            const char *label = name_end ? name_end + strlen(alt) : NULL;
            const char *end = label ? strstr(label, close) : NULL;
            CHECK(end); /* the page writes a chart as a paragraph of its own */
            char path[PATH_BYTES], file[256];
            snprintf(file, sizeof file, "charts/%.*s", (int)(name_end - name), name);
            TRY(path_join(path, sizeof path, folder, file));
            TRY(add_chart(out, path, label, (size_t)(end - label), ++number));
            s = end + strlen(close);
        } else {
            text_add_bytes(out, s, 1);
            s++;
        }
    }
    return status_ok();
}

Status html_from_markdown(const char *cmark, const char *folder, const char *title, const Text *css, Text *out)
{
    const char *const argv[] = { cmark, "--extension", "table", "report.md", NULL };
    const Child child = { argv, folder, "cmark-gfm", 60 };
    Text body = { 0 };
    Status s = child_run(&child, &body, NULL);
    if (s.code == STATUS_OK && body.failed)
        s = status_error(STATUS_OOM, "out of memory while composing report.html");
    if (s.code == STATUS_OK && !strstr(text_bytes(&body), "<h1>"))
        s = status_error(STATUS_BACKEND, "%s reported success but converted nothing", cmark);
    if (s.code == STATUS_OK) {
        text_add(out, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>");
        text_add_html(out, title);
        text_add(out, "</title>\n<style>\n");
        text_add(out, text_bytes(css));
        text_add(out, "</style>\n</head>\n<body>\n<main>\n");
        s = add_body(out, text_bytes(&body), folder);
        text_add(out, "</main>\n</body>\n</html>\n");
    }
    text_free(&body);
    return s;
}
