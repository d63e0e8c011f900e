#include "model/text_file.hpp"

#include <fstream>
#include <iterator>

#include "base/check.hpp"

namespace pagewheel {

void check_is_file(const std::filesystem::path& path) {
    check_file(std::filesystem::is_regular_file(path), path, " is no file");
}

std::string read_text(const std::filesystem::path& path) {
    check_is_file(path);
    std::ifstream stream(path, std::ios::binary);
    check_file(stream.good(), "cannot read ", path);
    return {std::istreambuf_iterator<char>(stream), {}};
}

}  // namespace pagewheel
