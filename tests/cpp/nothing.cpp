// The program of links_ROOM: that it links is the test.
int main() {}
