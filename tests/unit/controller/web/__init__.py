"""Tests of headway-web."""
