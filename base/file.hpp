// Whole files in and out: a read fails with one clear line, a write never leaves half a file.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace rackrail {

/// The content of a file. Throws ConfigError (file, found, expected) when it cannot be read.
std::string read_file(const std::filesystem::path& path);

/// Writes to a temporary name in the same folder, flushes it to disk, then renames it over `name`.
/// Missing folders are made. A link stays and its file is replaced; what is no file (a pipe, a
/// device, /dev/stdout) is written to as it is and never replaced. Throws ConfigError when the
/// place cannot be written; `name` is then unchanged.
void write_file_atomically(const std::filesystem::path& name, std::string_view content);

}  // namespace rackrail
