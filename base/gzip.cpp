#include "base/gzip.hpp"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "base/error.hpp"
#include "base/parse_units.hpp"

namespace rackrail {
namespace {

constexpr int kGzipWindow = 15 + 16;  // the largest window, in a gzip frame
constexpr std::size_t kPiece = std::size_t{1} << 20U;

class Inflater {
 public:
  explicit Inflater(const std::string& file) : file_(file) {
    if (inflateInit2(&stream_, kGzipWindow) != Z_OK) {
      throw Error("zlib could not be started");
    }
  }
  ~Inflater() { inflateEnd(&stream_); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  std::string all_of(std::string_view content, Bytes most) {
    std::string text;
    std::vector<Bytef> piece(kPiece);
    while (!content.empty()) {
      const std::size_t given =
          std::min<std::size_t>(content.size(), std::numeric_limits<uInt>::max());
      // zlib reads only, but its C interface does not say so.
      stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
      stream_.avail_in = static_cast<uInt>(given);
      const bool is_end = inflate_given(text, piece, most);
      content.remove_prefix(given - stream_.avail_in);
      if (is_end && !is_gzip(content)) {
        return text;  // what follows, if anything, is padding
      }
      if (is_end) {
        inflateReset(&stream_);
      } else if (content.empty()) {
        fail("a gzip file that ends too early");
      }
    }
    return text;
  }

 private:
  [[noreturn]] void fail(const std::string& found) const {
    throw ConfigError(ErrorContext{file_, "", found, "a whole gzip file"});
  }

  /// Whether a member ended.
  bool inflate_given(std::string& text, std::vector<Bytef>& piece, Bytes most) {
    while (true) {
      stream_.next_out = piece.data();
      stream_.avail_out = static_cast<uInt>(piece.size());
      const int status = inflate(&stream_, Z_NO_FLUSH);
      if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR) {
        fail(fmt::format("damaged gzip data after {} bytes", text.size()));
      }
      text.append(reinterpret_cast<const char*>(piece.data()), piece.size() - stream_.avail_out);
      if (text.size() > static_cast<std::uint64_t>(most.count())) {
        throw ConfigError(ErrorContext{file_, "",
                                       fmt::format("more than {} when unpacked", to_string(most)),
                                       "a smaller file"});
      }
      if (status == Z_STREAM_END) {
        return true;
      }
      if (stream_.avail_in == 0 && stream_.avail_out > 0) {
        return false;
      }
    }
  }

  const std::string& file_;
  z_stream stream_{};
};

}  // namespace

bool is_gzip(std::string_view content) { return content.starts_with("\x1f\x8b"); }

std::string gunzip(std::string_view content, const std::string& file, Bytes most) {
  return Inflater(file).all_of(content, most);
}

}  // namespace rackrail
