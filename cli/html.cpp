#include "cli/html.hpp"

#include <fmt/format.h>

#include <cctype>

namespace rackrail::cli {

namespace {

constexpr std::string_view kStyle = R"css(
:root { --ink:#16202b; --soft:#5b6b7b; --line:#dde3e9; --blue:#2563a8; --paper:#fff; --tint:#f4f7fa }
* { box-sizing:border-box }
body { margin:0; background:var(--tint); color:var(--ink);
  font:15px/1.5 system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif }
main { max-width:1080px; margin:0 auto; padding:32px 24px 64px }
h1 { font-size:26px; margin:0 0 4px } h2 { font-size:18px; margin:36px 0 10px }
p.lead { color:var(--soft); margin:0 0 20px }
section { background:var(--paper); border:1px solid var(--line); border-radius:10px; padding:18px 20px;
  overflow-x:auto }
.cards { display:grid; grid-template-columns:repeat(auto-fit,minmax(190px,1fr)); gap:14px }
.card { background:var(--paper); border:1px solid var(--line); border-radius:10px; padding:14px 16px }
.card b { display:block; font-size:24px; font-weight:600 } .card span { color:var(--soft); font-size:13px }
table { border-collapse:collapse; width:100%; font-variant-numeric:tabular-nums }
th { text-align:left; color:var(--soft); font-weight:500; border-bottom:1px solid var(--line) }
td,th { padding:5px 12px 5px 0 } td.n { text-align:right } tr+tr td { border-top:1px solid var(--line) }
svg { display:block; max-width:100%; height:auto } svg text { font:12px system-ui,"DejaVu Sans",sans-serif;
  fill:var(--ink) } svg .soft { fill:var(--soft) }
li { margin:3px 0 }
footer { color:var(--soft); font-size:13px; margin-top:36px }
)css";

// A number with a sign or a "<" before it and a unit after it, or the "-" that stands for none.
bool is_numeric_cell(const std::string& cell) {
  const std::size_t first = cell.find_first_not_of("-+< ");
  return cell == "-" ||
         (first != std::string::npos && std::isdigit(static_cast<unsigned char>(cell[first])) != 0);
}

}  // namespace

std::string escape_html(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

std::string html_page(const std::string& title, const std::string& body) {
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">"
      "<title>{}</title><style>{}</style></head>\n<body><main>\n{}\n</main></body></html>\n",
      escape_html(title), kStyle, body);
}

std::string html_table(const std::vector<std::vector<std::string>>& rows) {
  std::string html = "<table>";
  for (std::size_t r = 0; r < rows.size(); ++r) {
    html += "<tr>";
    for (const std::string& cell : rows[r]) {
      const char* tag = r == 0 ? "th" : "td";
      const char* style = r > 0 && is_numeric_cell(cell) ? " class=\"n\"" : "";
      html += fmt::format("<{}{}>{}</{}>", tag, style, escape_html(cell), tag);
    }
    html += "</tr>\n";
  }
  return html + "</table>";
}

}  // namespace rackrail::cli
