"""A lit format: each `=== title` of a .cases file is a test of its own, run
against attn-ls in the process of lit."""
import os
import re
import traceback

import lit.formats
import lit.Test

import runcase


class Cases(lit.formats.TestFormat):
    def __init__(self, server):
        self.server = server

    def getTestsInDirectory(self, suite, path, lit_config, config):
        folder = suite.getSourcePath(path)
        for name in sorted(os.listdir(folder)):
            if not name.endswith(".cases"):
                continue
            for title in runcase.titles(os.path.join(folder, name)):
                slug = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
                yield lit.Test.Test(suite, path + (name, slug), config)

    def execute(self, test, lit_config):
        path, slug = os.path.split(test.getSourcePath())
        try:
            for case in runcase.read(path):
                if re.sub(r"[^a-z0-9]+", "-", case.title.lower()).strip("-") \
                        == slug:
                    runcase.run(case, [self.server])
                    return lit.Test.PASS, ""
            return lit.Test.UNRESOLVED, "no such case"
        except Exception:
            return lit.Test.FAIL, traceback.format_exc()
