// Whole files in and out: a read fails with one clear line, a write never leaves half a file.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace rackrail {

/// The content of a file. Throws ConfigError (file, found, expected) when it cannot be read.
std::string read_file(const std::filesystem::path& path);

/// Writes to a temporary name in the same folder, flushes it to disk, then renames it over `path`.
/// Missing folders are made. Throws ConfigError when the place cannot be written; `path` is then
/// unchanged.
void write_file_atomically(const std::filesystem::path& path, std::string_view content);

}  // namespace rackrail
