# SPDX-License-Identifier: MIT
"""A plot of dots, as SVG: a line for each card, a dot for each system, seconds on the left and erases on the right, both logarithmic."""
import html
import math

COLORS = {"ext4": "#999999", "ext4-journal": "#555555", "rsync": "#e69f00", "order": "#56b4e9", "dm-4": "#cc79a7", "dm-64": "#8c3b70",
          "qemu": "#b8a500", "cowfs-home": "#ff8a80", "cowfs": "#d00000"}
ROW, TOP, LEFT, PANEL, GAP = 22, 74, 205, 360, 50


def scale(values):
    """Whole decades around them."""
    low = math.floor(math.log10(max(min(values), 1e-3)))
    high = math.ceil(math.log10(max(max(values), 1e-3)))
    return low, max(high, low + 1)


def panel(out, x, title, profiles, field, floor):
    values = [max(row[s][field], floor) for row in profiles.values() for s in row]
    low, high = scale(values)
    bottom = TOP + ROW * len(profiles)

    def at(v):
        return x + (math.log10(max(v, floor)) - low) / (high - low) * PANEL

    out.append(f'<text x="{x}" y="{TOP - 14}" font-weight="bold">{title}</text>')
    for d in range(low, high + 1):
        label = f"{10 ** d:,.0f}" if d >= 0 else f"{10 ** d:g}"
        out.append(f'<line x1="{at(10 ** d):.1f}" y1="{TOP}" x2="{at(10 ** d):.1f}" y2="{bottom}" stroke="#ddd"/>'
                   f'<text x="{at(10 ** d):.1f}" y="{bottom + 16}" text-anchor="middle">{label}</text>')
    for i, profile in enumerate(sorted(profiles)):
        y = TOP + ROW * i + ROW / 2
        for s, r in profiles[profile].items():
            size = 5.5 if s == "cowfs" else 4
            out.append(f'<circle cx="{at(r[field]):.1f}" cy="{y}" r="{size}" fill="{COLORS[s]}" fill-opacity="0.85">'
                       f"<title>{html.escape(s)}: {r[field]:g}</title></circle>")


def dots(title, profiles, systems):
    width = LEFT + 2 * PANEL + GAP + 30
    height = TOP + ROW * len(profiles) + 30
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
           f'<rect width="{width}" height="{height}" fill="white"/>', f'<text x="8" y="20" font-size="15">{html.escape(title)}</text>']
    x = 8
    for s in systems:
        if any(s in row for row in profiles.values()):
            out.append(f'<circle cx="{x + 5}" cy="36" r="4.5" fill="{COLORS[s]}"/><text x="{x + 14}" y="40">{html.escape(s)}</text>')
            x += 26 + 7 * len(s)
    for i, profile in enumerate(sorted(profiles)):
        out.append(f'<text x="{LEFT - 10}" y="{TOP + ROW * i + ROW / 2 + 4}" text-anchor="end">{html.escape(profile)}</text>')
        out.append(f'<line x1="{LEFT}" y1="{TOP + ROW * i + ROW / 2}" x2="{width - 30}" y2="{TOP + ROW * i + ROW / 2}" stroke="#eee"/>')
    panel(out, LEFT, "seconds at the card", profiles, "seconds", 1e-3)
    panel(out, LEFT + PANEL + GAP, "erases", profiles, "erases", 1)
    out.append("</svg>")
    return "\n".join(out) + "\n"
