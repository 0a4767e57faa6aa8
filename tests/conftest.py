"""Servers that tests share are ended with the test run, in each of its processes."""

import postgres_here


def pytest_sessionfinish():
    postgres_here.end()
