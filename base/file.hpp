// Whole files in and out: a read fails with one clear line, a write never leaves half a file.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/units.hpp"

namespace rackrail {

/// The content of a file, or of a device or pipe to its end. Throws ConfigError (file, found,
/// expected) when it cannot be read or has more than `most` bytes.
std::string read_file(const std::filesystem::path& path, Bytes most = 1_GiB);

/// Throws ConfigError that speaks of `what` ("a token") unless this user or root owns the file and
/// nobody else can read or write it.
void require_private_file(const std::filesystem::path& path, const std::string& what);

/// Writes to a temporary name in the same folder, flushes it to disk, then renames it over `name`.
/// Missing folders are made. A link stays and its file is replaced; what is no file (a pipe, a
/// device, /dev/stdout) is written to as it is and never replaced. Throws ConfigError when the
/// place cannot be written; `name` is then unchanged.
void write_file_atomically(const std::filesystem::path& name, std::string_view content);

/// The same in two parts: the slow one, after which the content is on the disk under a temporary
/// name, and the renaming. One that is never published leaves nothing behind. Not for streams.
class StagedFile {
 public:
  /// Throws as write_file_atomically.
  StagedFile(const std::filesystem::path& name, std::string_view content);
  ~StagedFile();
  StagedFile(StagedFile&& other) noexcept;
  StagedFile& operator=(StagedFile&&) = delete;
  StagedFile(const StagedFile&) = delete;
  StagedFile& operator=(const StagedFile&) = delete;

  /// Once. Throws as write_file_atomically.
  void publish();

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_;  ///< empty: nothing is to be removed
};

}  // namespace rackrail
