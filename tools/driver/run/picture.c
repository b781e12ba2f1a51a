// A picture of a call: domains of keys by tiles, and where the program lies
// under the machine's roofs. Colours are those of the pictures in docs.
#include "tools/driver/run/picture.h"

#include <math.h>
#include <string.h>

const char *drv_scaled(Arena *a, double v, const char *unit) {
  static const char *const prefix[] = {"", "k", "M", "G", "T", "P"};
  int i = 0;
  while (v >= 1000 && i < 5) {
    v /= 1000;
    i++;
  }
  return arena_printf(a,
                      v < 10    ? "%.2f %s%s"
                      : v < 100 ? "%.1f %s%s"
                                : "%.0f %s%s",
                      v, prefix[i], unit);
}

enum { WIDTH = 720, SIDE = 320, LEFT = 70, TOP = 30, GAP = 70 };

static void escaped(Buf *b, const char *s) {
  for (; *s; s++)
    if (*s == '<') buf_str(b, "&lt;");
    else if (*s == '&') buf_str(b, "&amp;");
    else buf_char(b, *s);
}

static void text(Buf *b, double x, double y, const char *anchor,
                 const char *s) {
  buf_printf(b, "<text x=\"%.4g\" y=\"%.4g\" text-anchor=\"%s\">", x, y,
             anchor);
  escaped(b, s);
  buf_str(b, "</text>\n");
}

// ---------------------------------------------------------------- masks
static const char *const cell_names[] = {"skipped", "partial", "full"};

static void legend(Buf *b, const DrvMap *m, Arena *a, double x, double y) {
  uint32_t n[3] = {0};
  for (uint32_t i = 0; i < m->down * m->across; i++) n[m->cell[i]]++;
  for (int i = 0; i < 3; i++, y += 24) {
    buf_printf(b,
               "<rect class=\"%s\" x=\"%.4g\" y=\"%.4g\" width=\"14\" "
               "height=\"14\"/>\n",
               cell_names[i], x, y);
    text(b, x + 22, y + 12, "start",
         arena_printf(a, "%s: %u of %u", cell_names[i], n[i],
                      m->down * m->across));
  }
  text(b, x, y + 14, "start",
       arena_printf(a, "a cell: %lld %s by %lld %s", (long long)m->cell_rows,
                    m->row, (long long)m->cell_keys, m->key));
}

static void mask(Buf *b, const DrvMap *m, Arena *a, double top) {
  double w = (double)SIDE / m->across, h = (double)SIDE / m->down;
  w = h = fmin(w, h);
  text(b, LEFT + w * m->across / 2, top - 8, "middle",
       arena_printf(a, "%s, %lld", m->key, (long long)m->keys));
  text(b, LEFT - 8, top + h * m->down / 2, "end",
       arena_printf(a, "%s, %lld", m->row, (long long)m->rows));
  for (uint32_t i = 0; i < m->down; i++)
    for (uint32_t j = 0; j < m->across; j++)
      buf_printf(b,
                 "<rect class=\"%s\" x=\"%.5g\" y=\"%.5g\" width=\"%.5g\" "
                 "height=\"%.5g\"/>\n",
                 cell_names[m->cell[i * m->across + j]], LEFT + j * w,
                 top + i * h, w, h);
  legend(b, m, a, LEFT + w * m->across + 30, top);
}

// ---------------------------------------------------------------- roofline
// Powers of two along x, of ten along y.
typedef struct Axes {
  double lo_x, hi_x, lo_y, hi_y, top;
} Axes;

static double at_x(const Axes *v, double x) {
  return LEFT + (WIDTH - LEFT - 40) * log(x / v->lo_x) / log(v->hi_x / v->lo_x);
}

static double at_y(const Axes *v, double y) {
  return v->top + SIDE * (1 - log(y / v->lo_y) / log(v->hi_y / v->lo_y));
}

static void grid(Buf *b, const Axes *v, Arena *a) {
  for (double x = v->lo_x; x <= v->hi_x * 1.01; x *= 4) {
    buf_printf(b, "<path class=\"grid\" d=\"M%.5g %.5g V%.5g\"/>\n", at_x(v, x),
               v->top, v->top + SIDE);
    text(b, at_x(v, x), v->top + SIDE + 18, "middle",
         arena_printf(a, "%.3g", x));
  }
  for (double y = v->lo_y; y <= v->hi_y * 1.01; y *= 10) {
    buf_printf(b, "<path class=\"grid\" d=\"M%d %.5g H%d\"/>\n", LEFT,
               at_y(v, y), WIDTH - 40);
    text(b, LEFT - 6, at_y(v, y) + 4, "end", drv_scaled(a, y, ""));
  }
  text(b, (LEFT + WIDTH - 40) / 2.0, v->top + SIDE + 40, "middle",
       "operations a byte");
  text(b, LEFT, v->top - 8, "start", "FLOP/s");
}

static void roofline(Buf *b, const DrvRoof *r, Arena *a, double top) {
  double ridge = r->peak / r->memory, can = fmin(r->peak, r->memory * r->work);
  Axes v = {0.25, 4096, 0, 0, top};
  while (v.hi_x < 4 * fmax(ridge, r->work)) v.hi_x *= 4;
  while (v.lo_x > r->work / 4) v.lo_x /= 4;
  v.hi_y = pow(10, ceil(log10(r->peak * 1.5)));
  v.lo_y = pow(10, floor(log10(r->memory * v.lo_x)));
  grid(b, &v, a);
  buf_printf(b, "<path class=\"roof\" d=\"M%.5g %.5g L%.5g %.5g H%.5g\"/>\n",
             at_x(&v, v.lo_x), at_y(&v, r->memory * v.lo_x), at_x(&v, ridge),
             at_y(&v, r->peak), at_x(&v, v.hi_x));
  text(b, at_x(&v, v.hi_x), at_y(&v, r->peak) - 8, "end",
       drv_scaled(a, r->peak, "FLOP/s"));
  text(b, at_x(&v, v.lo_x) + 12, at_y(&v, r->memory * v.lo_x) - 20, "start",
       drv_scaled(a, r->memory, "B/s"));
  buf_printf(b,
             "<path class=\"drop\" d=\"M%.5g %.5g V%.5g\"/>\n"
             "<circle class=\"here\" cx=\"%.5g\" cy=\"%.5g\" r=\"5\"/>\n",
             at_x(&v, r->work), at_y(&v, can), top + SIDE, at_x(&v, r->work),
             at_y(&v, can));
  text(b, at_x(&v, r->work), at_y(&v, can) + 22, "middle",
       arena_printf(a, "%.3g, at most %s", r->work,
                    drv_scaled(a, can, "FLOP/s")));
}

// ---------------------------------------------------------------- all
static const char style[] =
    "<style>\n"
    "rect { stroke: #ffffff; stroke-width: 0.5 }\n"
    ".skipped { fill: #eaeef2 } .partial { fill: #fdb750 }\n"
    ".full { fill: #2da44e }\n"
    ".grid { stroke: #d0d7de; fill: none }\n"
    ".roof { stroke: #0969da; stroke-width: 2; fill: none }\n"
    ".drop { stroke: #cf222e; stroke-dasharray: 4 3 }\n"
    ".here { fill: #cf222e }\n"
    "text { fill: #1f2328; font: 13px sans-serif }\n"
    "</style>\n"
    "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n";

void drv_picture(Arena *a, const char *title, const DrvMap *maps, uint32_t n,
                 const DrvRoof *roof, Buf *out) {
  bool has_roof = roof->peak > 0 && roof->memory > 0 && roof->work > 0;
  int height = TOP + 20 + (int)(n + has_roof) * (SIDE + GAP);
  double top = TOP + 40;
  buf_printf(out,
             "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d "
             "%d\">\n%s",
             WIDTH, height, style);
  text(out, 20, 24, "start", title);
  for (uint32_t i = 0; i < n; i++, top += SIDE + GAP)
    mask(out, &maps[i], a, top);
  if (has_roof) roofline(out, roof, a, top);
  buf_str(out, "</svg>\n");
}
