# style.gp - how every chart of batchmark looks. A chart's script loads it first; a copy lies beside each script.
#
# Colours: Okabe and Ito's palette, which readers with any common colour blindness can tell apart. In grey print lines
# differ by point and dash, stacked bars by alternating dark and light with an outline.

reset
set encoding utf8
chart_font     = 'DejaVu Sans,13'
chart_font_png = 'DejaVu Sans,19' # points; the SVG's are pixels, and the PNG has twice as many

set border 3 linecolor rgb '#444444' linewidth 1
set grid xtics ytics linecolor rgb '#dddddd' linewidth 1 dashtype solid
set tics nomirror out
unset mxtics
unset mytics
set title offset 0,0.3
set key bmargin center horizontal Left reverse noenhanced samplen 3 spacing 1.15
set bars 0.6

# One look a series: 1..8. "Plan" lines (11..18) are the same colours, thin and dashed.
array look_colour[8] = ['#0072B2', '#D55E00', '#009E73', '#CC79A7', '#E69F00', '#000000', '#56B4E9', '#7A7A7A']
array look_point[8]  = [7, 5, 9, 11, 13, 6, 4, 8]
array look_dash[8]   = [1, 2, 4, 5, 3, 1, 2, 4]
do for [i = 1:8] {
    set style line i      linecolor rgb look_colour[i] linewidth 2   dashtype look_dash[i] pointtype look_point[i] pointsize 0.9
    set style line 10 + i linecolor rgb look_colour[i] linewidth 1.3 dashtype '- '         pointtype look_point[i] pointsize 0.9
}
set style line 9  linecolor rgb '#222222' linewidth 1.3 dashtype solid # a limit
set style line 19 linecolor rgb '#555555' linewidth 1.3 dashtype '- '  # the legend's dashed line

# Layers of stacked bars, from the bottom up: 21..29, dark and light in turn; 30 is "all others".
array bar_colour[10] = ['#0072B2', '#F0C75E', '#00664B', '#E9B6D0', '#B04A00', '#9AD0F0', '#5B3A8E', '#C9E3B4', '#444444', '#E4E4E4']
do for [i = 1:10] {
    set style line 20 + i linecolor rgb bar_colour[i] linewidth 1
}
set style fill solid 1.0 border rgb '#333333'
